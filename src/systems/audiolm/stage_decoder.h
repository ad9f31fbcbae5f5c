// Runs one stage token by token: cache, guidance and position bias, without graph or copies of the past.
#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <optional>

#include "nn/transformer_step.h"
#include "systems/audiolm/stage_request.h"

namespace melete {

class StageDecoder {
 public:
  // Rows [from, to) of the attention bias over keys [0, to).
  using BiasRows = std::function<at::Tensor(int64_t from, int64_t to)>;

  // seen: bool [batch, capacity] or undefined: which positions may ever be looked at.
  StageDecoder(StageImpl& stage, const StageRequest& request, int64_t batch, int64_t capacity, BiasRows bias,
               const at::Tensor& seen = {});

  // The next positions, embedded: [batch, n, dim] -> the transformer's outputs at the last of them
  // [streams, dim], where streams is batch, or twice that with guidance.
  at::Tensor feed(const at::Tensor& embeddings);
  // The same at all n positions: [streams, n, dim].
  at::Tensor feed_all(const at::Tensor& embeddings);

  // Logits of all streams -> guided logits [batch, classes].
  at::Tensor guide(const at::Tensor& logits) const;

 private:
  at::Tensor step(const at::Tensor& x);
  at::Tensor bias_at(int64_t position);

  StageImpl& stage_;
  double guidance_;
  bool guided_ = false;  // a second stream without condition runs beside the first
  WeightStorage weights_;
  int64_t batch_, capacity_, position_ = 0;
  Context context_;
  BiasRows bias_;
  at::Tensor next_bias_;  // rows of the bias from first_of_next_bias_ on: made for many positions at once
  int64_t first_of_next_bias_ = 0;
  at::Tensor seen_;
  std::optional<TransformerCache> cache_;
  std::optional<TransformerStep> step_;  // for single positions, once the cache has a beginning
  at::Tensor past_;                      // without a cache
};

}  // namespace melete

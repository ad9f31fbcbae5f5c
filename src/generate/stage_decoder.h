// Runs one stage token by token: cache, guidance and position bias, without graph or copies of the past.
#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <optional>

#include "models/stage.h"

namespace melete {

class StageDecoder {
 public:
  // Rows [from, to) of the attention bias over keys [0, to).
  using BiasRows = std::function<at::Tensor(int64_t from, int64_t to)>;

  // seen: bool [batch, capacity] or undefined: which positions may ever be looked at.
  // use_cache: false feeds the whole past again at every step, to show that the cache changes nothing.
  StageDecoder(StageImpl& stage, const Condition& condition, double guidance, int64_t batch, int64_t capacity,
               BiasRows bias, const at::Tensor& seen = {}, bool use_cache = true);

  // The next positions, embedded: [batch, n, dim] -> the transformer's outputs at the last of them
  // [streams, dim], where streams is batch, or twice that with guidance.
  at::Tensor feed(const at::Tensor& embeddings);
  // The same at all n positions: [streams, n, dim].
  at::Tensor feed_all(const at::Tensor& embeddings);

  // Logits of all streams -> guided logits [batch, classes].
  at::Tensor guide(const at::Tensor& logits) const;

 private:
  StageImpl& stage_;
  double guidance_;
  bool guided_ = false;  // a second stream without condition runs beside the first
  int64_t batch_, position_ = 0;
  Context context_;
  BiasRows bias_;
  at::Tensor seen_;
  std::optional<TransformerCache> cache_;
  at::Tensor past_;  // without a cache
};

}  // namespace melete

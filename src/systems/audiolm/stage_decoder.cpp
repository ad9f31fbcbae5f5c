#include "systems/audiolm/stage_decoder.h"

#include <algorithm>

namespace melete {

StageDecoder::StageDecoder(StageImpl& stage, const StageRequest& request, int64_t batch, int64_t capacity,
                           BiasRows bias, const at::Tensor& seen)
    : stage_(stage),
      guidance_(request.sampling.guidance),
      weights_(request.weights),
      batch_(batch),
      capacity_(capacity),
      bias_(std::move(bias)),
      seen_(seen) {
  const at::NoGradGuard no_grad;
  StagePass pass;
  pass.condition = request.condition;
  context_ = stage.context(pass);
  guided_ = guidance_ != 1 && context_.mask.defined();
  if (guided_) {
    context_.values = at::cat({context_.values, context_.values});
    context_.mask = at::cat({context_.mask, at::zeros_like(context_.mask)});
    if (seen_.defined()) seen_ = at::cat({seen_, seen_});
  }
  const TransformerConfig& config = stage.stage().transformer;
  const int64_t prefix = config.condition == "prefix" ? context_.values.size(1) : 0;
  if (request.use_cache) cache_.emplace(config, guided_ ? 2 * batch : batch, capacity + prefix);
}

// A position's bias [heads or 1, keys], without an operator for most of them.
at::Tensor StageDecoder::bias_at(int64_t position) {
  constexpr int64_t kPositions = 32;
  if (!next_bias_.defined() || position >= first_of_next_bias_ + next_bias_.size(0)) {
    first_of_next_bias_ = position;
    next_bias_ = bias_(position, std::min(position + kPositions, capacity_)).contiguous();
  }
  return next_bias_.select(0, position - first_of_next_bias_).narrow(1, 0, position + 1);
}

// [streams, 1, dim] -> the same, by the kernels for single positions.
at::Tensor StageDecoder::step(const at::Tensor& x) {
  if (!step_) step_.emplace(*stage_.transformer, capacity_, seen_, context_, weights_);
  return step_->forward(x.squeeze(1), bias_at(position_++), *cache_).unsqueeze(1);
}

at::Tensor StageDecoder::feed_all(const at::Tensor& embeddings) {
  const at::NoGradGuard no_grad;
  const int64_t n = embeddings.size(1), from = cache_ ? position_ : 0, to = position_ + n;
  at::Tensor x = embeddings;
  if (!cache_) x = past_ = past_.defined() ? at::cat({past_, embeddings}, 1) : embeddings;
  if (guided_) x = at::cat({x, x});
  if (cache_ && from > 0 && n == 1 && TransformerStep::fits(*stage_.transformer, x.size(0))) return step(x);
  const at::Tensor bias = bias_(from, to);
  position_ = to;
  const at::Tensor seen = seen_.defined() ? seen_.narrow(1, 0, to) : at::Tensor();
  const at::Tensor y = stage_.transformer(x, bias, seen, context_, nullptr, cache_ ? &*cache_ : nullptr);
  return y.narrow(1, y.size(1) - n, n);
}

at::Tensor StageDecoder::feed(const at::Tensor& embeddings) {
  return feed_all(embeddings).select(1, embeddings.size(1) - 1);
}

at::Tensor StageDecoder::guide(const at::Tensor& logits) const {
  if (!guided_) return logits;
  const at::Tensor with = logits.narrow(0, 0, batch_), without = logits.narrow(0, batch_, batch_);
  return without + (with - without) * guidance_;
}

}  // namespace melete

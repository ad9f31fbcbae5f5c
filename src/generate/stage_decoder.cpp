#include "generate/stage_decoder.h"

namespace melete {

StageDecoder::StageDecoder(StageImpl& stage, const Condition& condition, double guidance, int64_t batch,
                           int64_t capacity, BiasRows bias, const at::Tensor& seen, bool use_cache)
    : stage_(stage), guidance_(guidance), batch_(batch), bias_(std::move(bias)), seen_(seen) {
  const at::NoGradGuard no_grad;
  StagePass pass;
  pass.condition = condition;
  context_ = stage.context(pass);
  guided_ = guidance != 1 && context_.mask.defined();
  if (guided_) {
    context_.values = at::cat({context_.values, context_.values});
    context_.mask = at::cat({context_.mask, at::zeros_like(context_.mask)});
    if (seen_.defined()) seen_ = at::cat({seen_, seen_});
  }
  const TransformerConfig& config = stage.stage().transformer;
  const int64_t prefix = config.condition == "prefix" ? context_.values.size(1) : 0;
  if (use_cache) cache_.emplace(config, guided_ ? 2 * batch : batch, capacity + prefix);
}

at::Tensor StageDecoder::feed_all(const at::Tensor& embeddings) {
  const at::NoGradGuard no_grad;
  const int64_t n = embeddings.size(1), to = position_ + n;
  at::Tensor x = embeddings;
  if (!cache_) x = past_ = past_.defined() ? at::cat({past_, embeddings}, 1) : embeddings;
  const int64_t from = cache_ ? position_ : 0;
  if (guided_) x = at::cat({x, x});
  const at::Tensor seen = seen_.defined() ? seen_.narrow(1, 0, to) : at::Tensor();
  const at::Tensor y =
      stage_.transformer(x, bias_(from, to), seen, context_, nullptr, cache_ ? &*cache_ : nullptr);
  position_ = to;
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

#include "systems/audiolm/semantic_transformer.h"

#include "config/schema.h"

namespace melete {

void describe(Schema& s, SemanticConfig& c) {
  s.option("semantic_tokens", c.semantic_tokens,
           "size of the semantic tokenizer's codebook; 0: from the tokenizer")
      .at_least(0);
  describe(s, c.stage);
}

SemanticTransformerImpl::SemanticTransformerImpl(const SemanticConfig& config)
    : StageImpl(config.stage), config_(config) {
  const TransformerConfig& t = config.stage.transformer;
  start = register_parameter("start", at::randn({t.dim}));
  embedding = register_module("embedding", torch::nn::Embedding(config.semantic_tokens + 1, t.dim));
  if (config.stage.position_bias)
    position_bias = register_module("position_bias", BiasNetwork(1, t.dim / 2, t.heads, 3));
  logits = register_module("logits", linear(t.dim, config.semantic_tokens + 1, true));
}

at::Tensor SemanticTransformerImpl::bias_table(int64_t positions) {
  return position_bias.is_empty() ? at::Tensor() : bias_by_distance(position_bias, positions);
}

at::Tensor SemanticTransformerImpl::forward(const at::Tensor& ids, const StagePass& pass) {
  const at::Tensor x = at::cat({repeat_start(start, ids.size(0)), embed(ids)}, 1);
  const int64_t n = x.size(1);
  return logits(transformer(x, causal_bias(bias_table(n), 0, n), pass.seen, context(pass), pass.draws));
}

}  // namespace melete

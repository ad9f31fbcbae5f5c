#include "systems/audiolm/coarse_transformer.h"

#include <cmath>

#include "config/schema.h"

namespace melete {

void describe(Schema& s, CoarseConfig& c) {
  s.option("semantic_tokens", c.semantic_tokens,
           "size of the semantic tokenizer's codebook; 0: from the tokenizer")
      .at_least(0);
  s.option("codebook_size", c.codebook_size, "size of the codec's codebooks; 0: from the codec").at_least(0);
  s.option("quantizers", c.quantizers, "how many of the codec's quantizers are coarse").at_least(1);
  s.option("predict_semantic", c.predict_semantic, "train on the semantic part, too");
  describe(s, c.stage);
}

CoarseTransformerImpl::CoarseTransformerImpl(const CoarseConfig& config)
    : StageImpl(config.stage), config_(config) {
  const TransformerConfig& t = config.stage.transformer;
  const int64_t classes = config.codebook_size + 1;
  semantic_start = register_parameter("semantic_start", at::randn({t.dim}));
  coarse_start = register_parameter("coarse_start", at::randn({t.dim}));
  semantic_embedding =
      register_module("semantic_embedding", torch::nn::Embedding(config.semantic_tokens + 1, t.dim));
  coarse_embedding =
      register_module("coarse_embedding", torch::nn::Embedding(config.quantizers * classes, t.dim));
  quantizer_embedding =
      register_module("quantizer_embedding", torch::nn::Embedding(config.quantizers, t.dim));
  if (config.stage.position_bias) {
    cross_bias = register_parameter("cross_bias", at::zeros({t.heads, 1, 1}));
    position_bias = register_module("position_bias", BiasNetwork(1, t.dim / 2, t.heads, 3));
  }
  if (config.predict_semantic)
    semantic_logits = register_module("semantic_logits", linear(t.dim, config.semantic_tokens + 1, true));
  // Small enough that the first losses are those of guessing.
  const double scale = 1 / std::sqrt(static_cast<double>(t.dim));
  coarse_logits = register_parameter("coarse_logits", at::randn({config.quantizers, classes, t.dim}) * scale);
}

at::Tensor CoarseTransformerImpl::bias_table(int64_t positions) {
  return position_bias.is_empty() ? at::Tensor() : bias_by_distance(position_bias, positions);
}

at::Tensor CoarseTransformerImpl::bias(const at::Tensor& table, int64_t semantic, int64_t from, int64_t to) {
  const at::Tensor plain = causal_bias(table, from, to);
  if (!table.defined()) return plain;
  const at::Tensor is_semantic = at::arange(to, at::TensorOptions(table.device())) < semantic + 1;
  const at::Tensor across =
      is_semantic.narrow(0, from, to - from)
          .unsqueeze(1)
          .logical_xor(is_semantic.unsqueeze(0))
          .logical_and(plain.select(1, 0).isfinite());  // what is in the future stays there
  return at::where(across.unsqueeze(1), cross_bias.view({1, -1, 1}), plain);
}

at::Tensor CoarseTransformerImpl::embed_coarse(const at::Tensor& codes, int64_t first) {
  // The tables lie codebook_size rows apart, as in audiolm-pytorch's files: the end is never read.
  return embed_codes(codes, coarse_embedding, quantizer_embedding, config_.codebook_size, first);
}

at::Tensor CoarseTransformerImpl::embed(const at::Tensor& semantic, const at::Tensor& coarse) {
  const int64_t batch = semantic.size(0);
  return at::cat({repeat_start(semantic_start, batch), embed_padded(semantic, semantic_embedding),
                  repeat_start(coarse_start, batch), embed_coarse(coarse)},
                 1);
}

CoarseLogits CoarseTransformerImpl::forward(const at::Tensor& semantic, const at::Tensor& coarse,
                                            const StagePass& pass) {
  const int64_t s = semantic.size(1);
  const at::Tensor x = embed(semantic, coarse);
  const int64_t n = x.size(1);
  const at::Tensor y = transformer(x, bias(bias_table(n), s, 0, n), pass.seen, context(pass), pass.draws);
  CoarseLogits result;
  if (!semantic_logits.is_empty()) result.semantic = semantic_logits(y.narrow(1, 0, s));
  result.coarse = quantizer_logits(y.narrow(1, s + 1, n - s - 1), coarse_logits);
  return result;
}

}  // namespace melete

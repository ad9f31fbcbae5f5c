#include "systems/audiolm/stage.h"

#include "config/schema.h"
#include "core/base/error.h"
#include "core/device.h"
#include "nn/draws.h"

namespace melete {

void describe(Schema& s, StageConfig& c) {
  describe(s, c.transformer);
  s.option("text_dim", c.text_dim, "width of the embeddings that condition it").at_least(1);
  s.section("text", c.text, "its own text encoder, trained with it: for models without text_from");
  s.option("condition_drop", c.condition_drop, "share of training items that see no condition")
      .at_least(0)
      .at_most(1);
  s.option("position_bias", c.position_bias, "a learned bias by distance");
  s.option("unused_text_projection", c.unused_text_projection,
           "keep audiolm-pytorch's text projection in a model without a condition");
}

Condition masked_condition(const at::Tensor& embeddings) {
  if (!embeddings.defined()) return {};
  return {embeddings, embeddings.ne(0).any(-1)};
}

StageImpl::StageImpl(const StageConfig& config) : stage_(config) {
  transformer = register_module("transformer", Transformer(config.transformer));
  const int64_t dim = config.transformer.dim;
  if ((config.conditioned() || config.unused_text_projection) && config.text_dim != dim)
    text_projection = register_module("text_projection", linear(config.text_dim, dim, false));
  if (!config.text.enabled()) return;
  require(
      config.conditioned() && config.text_dim == config.text.dim,
      "[model.text] a text encoder of width {} needs a model that is conditioned on width {}, got condition "
      "{} and text_dim {}",
      config.text.dim, config.text.dim, config.transformer.condition, config.text_dim);
  text_encoder = register_module("text_encoder", SmallTextEncoder(config.text));
}

Condition StageImpl::condition(const std::vector<std::string>& texts, const at::Tensor& features,
                               Draws* draws) {
  if (text_encoder.is_empty() || features.defined()) return masked_condition(features);
  if (texts.empty()) return {};
  const TextEmbeddings made = text_encoder(texts, draws);
  return {made.embeddings, made.mask};
}

Context StageImpl::context(const StagePass& pass) {
  const Condition& given = pass.condition;
  if (!given.embeddings.defined()) {
    require(!stage_.conditioned(), "[model] it is conditioned, but no text or audio embedding was given");
    return {};
  }
  require(stage_.conditioned(), "[model] it has no condition, but an embedding was given");
  require(given.embeddings.size(-1) == stage_.text_dim, "[model] embeddings of width {} expected, got {}",
          stage_.text_dim, given.embeddings.size(-1));
  Context result{given.embeddings, given.mask};
  if (!text_projection.is_empty()) result.values = project(given.embeddings, text_projection);
  if (!given.mask.defined() || pass.condition_drop == 0) return result;
  if (pass.condition_drop == 1) {
    result.mask = at::zeros_like(given.mask);
  } else {
    require(pass.draws != nullptr, "[model] dropping the condition needs draws");
    const at::Tensor keep =
        pass.draws->uniform("keep_condition", {given.mask.size(0)}) < 1 - pass.condition_drop;
    result.mask = given.mask.logical_and(sent_to(given.mask.device(), keep).unsqueeze(1));
  }
  return result;
}

at::Tensor embed_codes(const at::Tensor& codes, const torch::nn::Embedding& table,
                       const torch::nn::Embedding& by_quantizer, int64_t rows, int64_t first) {
  const at::Tensor quantizer =
      at::arange(first, first + codes.size(1), codes.options()).remainder(by_quantizer->weight.size(0));
  return at::embedding(table->weight, codes.clamp_min(0) + quantizer * rows) +
         at::embedding(by_quantizer->weight, quantizer);
}

at::Tensor quantizer_logits(const at::Tensor& x, const at::Tensor& weights) {
  const int64_t batch = x.size(0), n = x.size(1), quantizers = weights.size(0);
  const int64_t frames = (n + quantizers - 1) / quantizers;
  const at::Tensor whole =
      frames * quantizers == n ? x : at::constant_pad_nd(x, {0, 0, 0, frames * quantizers - n});
  const at::Tensor by_quantizer =
      whole.reshape({batch * frames, quantizers, x.size(2)}).transpose(0, 1);  // [quantizers, rows, dim]
  return at::bmm(by_quantizer, weights.transpose(1, 2))
      .transpose(0, 1)
      .reshape({batch, frames * quantizers, weights.size(1)})
      .narrow(1, 0, n);
}

at::Tensor embed_padded(const at::Tensor& ids, const torch::nn::Embedding& table) {
  const at::Tensor padding = ids.eq(kPadding);
  return at::embedding(table->weight, ids.masked_fill(padding, 0)).masked_fill(padding.unsqueeze(-1), 0);
}

at::Tensor repeat_start(const at::Tensor& start, int64_t batch) {
  return start.expand({batch, 1, start.size(0)});
}

}  // namespace melete

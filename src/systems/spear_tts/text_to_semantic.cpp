#include "systems/spear_tts/text_to_semantic.h"

#include <cmath>

#include "config/schema.h"
#include "core/base/error.h"
#include "nn/dense.h"
#include "nn/feed_forward.h"

namespace melete::spear_tts {

std::string_view name_of(Modality modality) {
  return modality == Modality::speech ? "speech" : "text";
}

void describe(Schema& s, VocabularyConfig& c) {
  s.option("tokens", c.tokens, "different tokens; 0: as many as the tokenizer has").at_least(0);
  s.option("padding", c.padding, "id that stands for no token, besides all negative ones").at_least(-1);
  s.option("end", c.end, "sequences end with a token of its own");
}

void describe(Schema& s, TextToSemanticConfig& c) {
  s.section("speech", c.speech, "semantic tokens");
  s.section("text", c.text, "tokens of text");
  s.option("dim", c.dim, "width of the residual stream").at_least(2);
  s.option("encoder_layers", c.encoder_layers, "layers that read").at_least(1);
  s.option("decoder_layers", c.decoder_layers, "layers that write").at_least(1);
  s.option("heads", c.heads, "query heads").at_least(1);
  s.option("head_dim", c.head_dim, "width of a head, even").at_least(2);
  s.option("decoder_key_heads", c.decoder_key_heads,
           "key heads of the decoder's self-attention, which query heads share; 0: as many as heads")
      .at_least(0);
  s.option("feed_forward_multiplier", c.feed_forward_multiplier,
           "the inner width is two thirds of this many times dim")
      .at_least(0);
  s.option("attention_dropout", c.attention_dropout, "share of attention weights dropped in training")
      .at_least(0)
      .at_most(0.99);
  s.option("feed_forward_dropout", c.feed_forward_dropout, "share of hidden values dropped in training")
      .at_least(0)
      .at_most(0.99);
  s.option("condition_drop", c.condition_drop,
           "share of rows that training decodes without their source; guidance needs more than 0")
      .at_least(0)
      .at_most(0.99);
  s.option("early_exit_layer", c.early_exit_layer,
           "decoder layer after which semantic tokens are drafted for speculative decoding; 0: none")
      .at_least(0);
  s.option("early_exit_detached", c.early_exit_detached, "the early exit's loss trains its own head only");
}

VocabularyImpl::VocabularyImpl(const VocabularyConfig& config, int64_t dim) : config_(config) {
  embedding = register_module("embedding", torch::nn::Embedding(classes(), dim));
  // The embedding gives the logits, too: with this width those of a normalised stream begin near 1.
  const double width = 1 / std::sqrt(static_cast<double>(dim));
  const at::NoGradGuard no_grad;
  embedding->weight.normal_(0, width);
  start = register_parameter("start", at::randn({dim}) * width);
}

at::Tensor VocabularyImpl::is_padding(const at::Tensor& ids) const {
  return config_.padding < 0 ? ids.lt(0) : ids.lt(0).logical_or_(ids.eq(config_.padding));
}

at::Tensor VocabularyImpl::with_end(const at::Tensor& ids) const {
  if (!config_.end) return ids;
  const at::Tensor lengths = is_padding(ids).to(at::kLong).cumsum(1).eq(0).sum(1, true);
  return at::constant_pad_nd(ids, {0, 1}, config_.padding).scatter_(1, lengths, end_id());
}

at::Tensor VocabularyImpl::embed(const at::Tensor& ids) {
  return embedding(ids.clamp_min(0));
}

at::Tensor VocabularyImpl::starts(int64_t rows) const {
  return start.expand({rows, 1, start.size(0)});
}

at::Tensor VocabularyImpl::logits(const at::Tensor& values) {
  return dense(values, embedding->weight, {});
}

EarlyExitImpl::EarlyExitImpl(int64_t dim, int64_t classes) {
  feed_forward = register_module("feed_forward", FeedForward(dim, 4));
  norm = register_module("norm", RmsNorm(dim));
  output = register_module("output", linear(dim, classes, false));
}

at::Tensor EarlyExitImpl::forward(const at::Tensor& stream) {
  return project(norm(stream + feed_forward(stream)), output);
}

TextToSemanticImpl::TextToSemanticImpl(const TextToSemanticConfig& config) : config_(config) {
  require(config.early_exit_layer >= 0 && config.early_exit_layer <= config.decoder_layers,
          "[spear-tts] expected an early exit after one of the {} decoder layers, got {}",
          config.decoder_layers, config.early_exit_layer);
  speech = register_module("speech", Vocabulary(config.speech, config.dim));
  text = register_module("text", Vocabulary(config.text, config.dim));
  TransformerConfig sizes;
  sizes.dim = config.dim;
  sizes.depth = config.encoder_layers;
  sizes.heads = sizes.key_heads = config.heads;
  sizes.head_dim = config.head_dim;
  sizes.feed_forward_multiplier = config.feed_forward_multiplier;
  sizes.attention_dropout = config.attention_dropout;
  sizes.feed_forward_dropout = config.feed_forward_dropout;
  encoder = register_module("encoder", Transformer(sizes));
  sizes.depth = config.decoder_layers;
  if (config.decoder_key_heads > 0) sizes.key_heads = config.decoder_key_heads;
  sizes.writes = true;
  decoder = register_module("decoder", Transformer(sizes));
  if (has_early_exit()) early_exit = register_module("early_exit", EarlyExit(config.dim, speech->classes()));
}

Context TextToSemanticImpl::encode(const Source& source, Draws* draws) {
  VocabularyImpl& tokens = vocabulary(source.modality);
  const at::Tensor ids = tokens.with_end(source.ids);
  Context context;
  context.seen = source.seen.defined() ? source.seen : tokens.is_padding(ids).logical_not_();
  require(context.seen.sizes() == ids.sizes(),
          "[spear-tts] expected a mask for {} ids of a row, their end included, got {}", ids.size(1),
          context.seen.size(-1));
  context.values = encoder(tokens.embed(ids), context.seen, Context{}, draws).values;
  return context;
}

TransformerOutput TextToSemanticImpl::decode(const at::Tensor& ids, Modality target, const Context& context,
                                             const at::Tensor& seen, Draws* draws) {
  VocabularyImpl& tokens = vocabulary(target);
  const at::Tensor x = at::cat({tokens.starts(ids.size(0)), tokens.embed(ids)}, 1);
  const at::Tensor there =
      seen.defined() ? seen : at::constant_pad_nd(tokens.is_padding(ids).logical_not_(), {1, 0}, 1);
  const int64_t early = target == Modality::speech ? config_.early_exit_layer : 0;
  return decoder(x, there, context, draws, early);
}

}  // namespace melete::spear_tts

#include "pretrained/t5.h"

#include <cmath>

#include "core/base/error.h"
#include "nn/attention.h"
#include "nn/frozen.h"
#include "nn/identity.h"
#include "nn/named_activation.h"

namespace melete {

namespace {

// Scaled by the root of the mean square; no mean is subtracted.
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double epsilon) {
  return x * at::rsqrt(x.square().mean(-1, true) + epsilon) * weight;
}

// Which row of the bias table a distance (key - query) has: near ones have their own, far ones share by
// logarithm; half of the rows are for keys to the right.
at::Tensor bucket_of(const at::Tensor& distance, int64_t buckets, int64_t max_distance) {
  const int64_t half = buckets / 2, exact = half / 2;
  const at::Tensor length = distance.abs();
  const double log_range = std::log(static_cast<double>(max_distance) / static_cast<double>(exact));
  const at::Tensor shared =
      (exact + (at::log(length.to(at::kFloat) / exact) / log_range * (half - exact)).to(at::kLong))
          .clamp_max(half - 1);
  return (distance > 0).to(at::kLong) * half + at::where(length < exact, length, shared);
}

}  // namespace

void describe(Schema& schema, T5Config& config) {
  schema.option("vocabulary", config.vocabulary, "ids that the embedding knows").at_least(1);
  schema.option("dim", config.dim, "width").at_least(1);
  schema.option("head_dim", config.head_dim, "width of one attention head").at_least(1);
  schema.option("feed_forward_dim", config.feed_forward_dim, "width inside the feed-forward layers")
      .at_least(1);
  schema.option("layers", config.layers, "transformer blocks").at_least(1);
  schema.option("heads", config.heads, "attention heads").at_least(1);
  schema.option("position_buckets", config.position_buckets, "rows of the position bias").at_least(4);
  schema.option("position_max_distance", config.position_max_distance, "distance of the last row")
      .at_least(2)
      .unit("tokens");
  schema.option("norm_epsilon", config.norm_epsilon, "added to the mean square").at_least(0);
  schema.option("activation", config.activation, "inside the feed-forward layers").one_of(activation_names());
  schema.option("gated", config.gated, "the activation gates a second projection");
  schema.option("max_tokens", config.max_tokens, "longer texts are cut").at_least(1).unit("tokens");
}

T5BlockImpl::T5BlockImpl(const T5Config& config) : config_(config) {
  const int64_t dim = config.dim, inner = config.heads * config.head_dim, wide = config.feed_forward_dim;
  attention_norm = register_parameter("attention_norm", at::ones({dim}));
  qkv = register_parameter("qkv", at::randn({3 * inner, dim}) / std::sqrt(static_cast<double>(dim)));
  attention_output =
      register_parameter("attention_output", at::randn({dim, inner}) / std::sqrt(static_cast<double>(inner)));
  feed_norm = register_parameter("feed_norm", at::ones({dim}));
  feed_input = register_parameter(
      "feed_input", at::randn({(config.gated ? 2 : 1) * wide, dim}) / std::sqrt(static_cast<double>(dim)));
  feed_output =
      register_parameter("feed_output", at::randn({dim, wide}) / std::sqrt(static_cast<double>(wide)));
}

at::Tensor T5BlockImpl::forward(const at::Tensor& input, const at::Tensor& bias, const at::Tensor& hidden) {
  const auto heads = at::linear(rms_norm(input, attention_norm, config_.norm_epsilon), qkv)
                         .view({input.size(0), input.size(1), 3, config_.heads, config_.head_dim})
                         .unbind(2);
  AttentionOptions how;  // T5 leaves out the usual scale of 1 / sqrt(head_dim)
  how.bias = bias;
  how.hidden = hidden;
  const at::Tensor x = input + at::linear(attend(heads[0], heads[1], heads[2], how), attention_output);

  const at::Tensor wide = at::linear(rms_norm(x, feed_norm, config_.norm_epsilon), feed_input);
  if (!config_.gated) return x + at::linear(activate(config_.activation, wide), feed_output);
  const auto halves = wide.chunk(2, -1);
  return x + at::linear(activate(config_.activation, halves[0]) * halves[1], feed_output);
}

T5EncoderImpl::T5EncoderImpl(const T5Config& config) : config_(config) {
  embedding = register_parameter("embedding", at::randn({config.vocabulary, config.dim}));
  position_bias =
      register_parameter("position_bias", 0.1 * at::randn({config.position_buckets, config.heads}));
  for (int64_t i = 0; i < config.layers; ++i) blocks->push_back(T5Block(config));
  register_module("blocks", blocks);
  final_norm = register_parameter("final_norm", at::ones({config.dim}));
}

at::Tensor T5EncoderImpl::forward(const at::Tensor& ids, const std::optional<at::Tensor>& mask) {
  const int64_t tokens = ids.size(1);
  const at::Tensor positions = at::arange(tokens, ids.options());
  const at::Tensor distance = positions.unsqueeze(0) - positions.unsqueeze(1);  // [query, key]
  const at::Tensor buckets = bucket_of(distance, config_.position_buckets, config_.position_max_distance);
  const at::Tensor bias = at::embedding(position_bias, buckets).permute({0, 2, 1}).contiguous();
  const at::Tensor hidden = mask ? mask->to(at::kBool).logical_not() : at::Tensor();
  at::Tensor x = at::embedding(embedding, ids);
  for (const auto& block : *blocks) x = block->as<T5BlockImpl>()->forward(x, bias, hidden);
  return rms_norm(x, final_norm, config_.norm_epsilon);
}

T5TextEncoder::T5TextEncoder(T5Encoder model, std::shared_ptr<const TextTokenizer> tokenizer)
    : model_(std::move(model)), tokenizer_(std::move(tokenizer)) {
  T5Config config = model_->config();
  require(tokenizer_->vocabulary() <= config.vocabulary,
          "[t5] the tokenizer has {} pieces, the model's embedding only {}; they do not belong together",
          tokenizer_->vocabulary(), config.vocabulary);
  freeze(*model_);
  identity_ = identity_of_model(kind() + tokenizer_->identity(), config, tensors_of(*model_));
}

TextEmbeddings T5TextEncoder::encode(const std::vector<std::string>& texts) const {
  const TextIds input = text_ids(*tokenizer_, texts, model_->config().max_tokens);
  const at::Tensor ids = input.ids.to(device_of(*model_)), mask = input.mask.to(ids.device());
  const FrozenScope frozen(ids);
  const at::Tensor embeddings = model_->forward(ids, mask).masked_fill(mask.logical_not().unsqueeze(-1), 0);
  return {embeddings.to(at::kCPU), input.mask};
}

}  // namespace melete

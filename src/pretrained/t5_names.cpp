#include "pretrained/t5_names.h"

#include <regex>

#include "core/base/error.h"
#include "nn/frozen.h"
#include "nn/named_activation.h"

namespace melete::huggingface {

namespace {

// "gated-gelu" means the approximation by tanh, plain "gelu" the exact one.
void set_feed_forward(T5Config& config, const std::string& projection) {
  config.gated = projection.starts_with("gated-");
  config.activation = config.gated ? projection.substr(6) : projection;
  if (projection == "gated-gelu") config.activation = "gelu_new";
}

std::vector<std::string> names_of(const std::string& ours, const T5Config& config, bool shared) {
  if (ours == "embedding") return {shared ? "shared.weight" : "encoder.embed_tokens.weight"};
  if (ours == "position_bias")
    return {"encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"};
  if (ours == "final_norm") return {"encoder.final_layer_norm.weight"};
  std::smatch match;
  require(std::regex_match(ours, match, std::regex(R"(blocks\.(\d+)\.(\w+))")), "[t5] no name known for `{}`",
          ours);
  const std::string block = fmt::format("encoder.block.{}.layer.", match.str(1)), leaf = match.str(2);
  const std::string attention = block + "0.SelfAttention.", feed = block + "1.DenseReluDense.";
  if (leaf == "attention_norm") return {block + "0.layer_norm.weight"};
  if (leaf == "qkv") return {attention + "q.weight", attention + "k.weight", attention + "v.weight"};
  if (leaf == "attention_output") return {attention + "o.weight"};
  if (leaf == "feed_norm") return {block + "1.layer_norm.weight"};
  if (leaf == "feed_output") return {feed + "wo.weight"};
  if (config.gated) return {feed + "wi_0.weight", feed + "wi_1.weight"};
  return {feed + "wi.weight"};
}

bool not_of_the_encoder(const std::string& name) {
  return name.starts_with("decoder.") || name == "lm_head.weight" || name == "shared.weight" ||
         name == "encoder.embed_tokens.weight";
}

}  // namespace

T5Config t5_config(const nlohmann::ordered_json& json) {
  T5Config config;
  take(json, "vocab_size", config.vocabulary);
  take(json, "d_model", config.dim);
  take(json, "d_kv", config.head_dim);
  take(json, "d_ff", config.feed_forward_dim);
  take(json, "num_layers", config.layers);
  take(json, "num_heads", config.heads);
  take(json, "relative_attention_num_buckets", config.position_buckets);
  take(json, "relative_attention_max_distance", config.position_max_distance);
  take(json, "layer_norm_epsilon", config.norm_epsilon);
  std::string projection = "relu";
  take(json, "feed_forward_proj", projection);
  set_feed_forward(config, projection);
  schema_of(config).check();
  return config;
}

T5Config t5_config(const TensorMap& weights, const std::string& where) {
  const auto size = [&](const std::string& name, int64_t dimension) {
    const auto found = weights.find(name);
    require(found != weights.end(), "[{}] has no `{}`: not a T5 encoder", where, name);
    return found->second.size(dimension);
  };
  T5Config config;
  const std::string embedding =
      weights.count("shared.weight") ? "shared.weight" : "encoder.embed_tokens.weight";
  const std::string first = "encoder.block.0.layer.";
  config.vocabulary = size(embedding, 0);
  config.dim = size(embedding, 1);
  config.position_buckets = size(first + "0.SelfAttention.relative_attention_bias.weight", 0);
  config.heads = size(first + "0.SelfAttention.relative_attention_bias.weight", 1);
  config.head_dim = size(first + "0.SelfAttention.q.weight", 0) / config.heads;
  config.feed_forward_dim = size(first + "1.DenseReluDense.wo.weight", 1);
  set_feed_forward(config, weights.count(first + "1.DenseReluDense.wi_0.weight") ? "gated-gelu" : "relu");
  config.layers = 0;
  while (weights.count(fmt::format("encoder.block.{}.layer.0.layer_norm.weight", config.layers)))
    ++config.layers;
  return config;
}

T5Encoder load_t5(const T5Config& config, const TensorMap& weights, const std::string& where) {
  T5Encoder model(config);
  const bool shared = weights.count("shared.weight") > 0;
  const auto names = [&](const std::string& ours) { return names_of(ours, config, shared); };
  load_tensors(*model, translate(*model, names, weights, not_of_the_encoder, where), where);
  freeze(*model);
  return model;
}

}  // namespace melete::huggingface

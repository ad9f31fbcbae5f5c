#include "pretrained/hubert_names.h"

#include <regex>

#include "core/base/error.h"
#include "nn/frozen.h"
#include "pretrained/fairseq.h"

namespace melete::foreign_hubert {

namespace {

using Json = nlohmann::ordered_json;

bool is_fairseq(const TensorMap& weights) {
  for (const auto& [name, tensor] : weights)
    if (name.ends_with("feature_extractor.conv_layers.0.0.weight")) return true;
  return false;
}

const std::vector<std::pair<std::regex, std::string>>& fairseq_rules() {
  static const std::vector<std::pair<std::regex, std::string>> rules = {
      {std::regex(R"(^(feature_extractor\.conv_layers\.\d+)\.0\.)"), "$1.conv."},
      {std::regex(R"(^(feature_extractor\.conv_layers\.\d+)\.2\.1\.)"), "$1.layer_norm."},
      {std::regex(R"(^(feature_extractor\.conv_layers\.\d+)\.2\.)"), "$1.layer_norm."},
      {std::regex(R"(^layer_norm\.)"), "feature_projection.layer_norm."},
      {std::regex(R"(^post_extract_proj\.)"), "feature_projection.projection."},
      {std::regex(R"(^(encoder\.layers\.\d+)\.self_attn\.)"), "$1.attention."},
      {std::regex(R"(^(encoder\.layers\.\d+)\.self_attn_layer_norm\.)"), "$1.layer_norm."},
      {std::regex(R"(^(encoder\.layers\.\d+)\.fc1\.)"), "$1.feed_forward.intermediate_dense."},
      {std::regex(R"(^(encoder\.layers\.\d+)\.fc2\.)"), "$1.feed_forward.output_dense."},
  };
  return rules;
}

// Hugging Face's names, norms folded.
TensorMap as_huggingface(const TensorMap& weights) {
  if (!is_fairseq(weights)) return fold_weight_norm(without_prefix(weights, "hubert."));
  const TensorMap bare = without_prefix(weights, "w2v_encoder.w2v_model.");
  const bool batch_norm = bare.count("encoder.pos_conv.0.running_mean") > 0;
  TensorMap result;
  for (const auto& [name, tensor] : bare) {
    std::string theirs = name;
    for (const auto& [pattern, replacement] : fairseq_rules())
      if (std::regex_search(theirs, pattern)) {
        theirs = std::regex_replace(theirs, pattern, replacement);
        break;
      }
    static const std::regex position(R"(^encoder\.pos_conv\.(\d)\.)");
    std::smatch match;
    if (std::regex_search(theirs, match, position))
      theirs = std::regex_replace(theirs, position,
                                  batch_norm && match.str(1) == "0" ? "encoder.pos_conv_embed.batch_norm."
                                                                    : "encoder.pos_conv_embed.conv.");
    result.emplace(theirs, tensor);
  }
  return fold_weight_norm(result);
}

// The batch norm's statistics become one scale and one shift a channel. fairseq leaves out a projection that
// would keep the width: it is the identity.
void add_derived(TensorMap& weights, const HubertConfig& config) {
  const std::string norm = "encoder.pos_conv_embed.batch_norm.";
  if (config.position_batch_norm && weights.count(norm + "running_var")) {
    const at::Tensor scale = weights.at(norm + "weight") / (weights.at(norm + "running_var") + 1e-5).sqrt();
    const at::Tensor shift = weights.at(norm + "bias") - weights.at(norm + "running_mean") * scale;
    std::erase_if(weights, [&](const auto& item) { return item.first.starts_with(norm); });
    weights.emplace(norm + "scale", scale);
    weights.emplace(norm + "shift", shift);
  }
  const std::string projection = "feature_projection.projection.";
  if (!weights.count(projection + "weight") && config.conv_dims.back() == config.dim) {
    weights.emplace(projection + "weight", at::eye(config.dim));
    weights.emplace(projection + "bias", at::zeros({config.dim}));
  }
}

std::vector<std::string> names_of(const std::string& ours) {
  static const std::map<std::string, std::string> plain = {
      {"feature_norm_weight", "feature_projection.layer_norm.weight"},
      {"feature_norm_bias", "feature_projection.layer_norm.bias"},
      {"projection_weight", "feature_projection.projection.weight"},
      {"projection_bias", "feature_projection.projection.bias"},
      {"position_weight", "encoder.pos_conv_embed.conv.weight"},
      {"position_bias", "encoder.pos_conv_embed.conv.bias"},
      {"position_scale", "encoder.pos_conv_embed.batch_norm.scale"},
      {"position_shift", "encoder.pos_conv_embed.batch_norm.shift"},
      {"norm_weight", "encoder.layer_norm.weight"},
      {"norm_bias", "encoder.layer_norm.bias"},
  };
  static const std::map<std::string, std::string> parts = {
      {"norm", "layer_norm"},
      {"output", "attention.out_proj"},
      {"attention_norm", "layer_norm"},
      {"feed_input", "feed_forward.intermediate_dense"},
      {"feed_output", "feed_forward.output_dense"},
      {"feed_norm", "final_layer_norm"},
  };
  if (const auto found = plain.find(ours); found != plain.end()) return {found->second};
  std::smatch match;
  if (std::regex_match(ours, match, std::regex(R"(convolutions\.(\d+)\.(norm_)?(weight|bias))")))
    return {fmt::format("feature_extractor.conv_layers.{}.{}.{}", match.str(1),
                        match[2].matched ? "layer_norm" : "conv", match.str(3))};
  require(std::regex_match(ours, match, std::regex(R"(layers\.(\d+)\.(\w+)_(weight|bias))")),
          "[hubert] no name known for `{}`", ours);
  const std::string layer = fmt::format("encoder.layers.{}.", match.str(1)), leaf = match.str(3);
  if (match.str(2) == "qkv")
    return {layer + "attention.q_proj." + leaf, layer + "attention.k_proj." + leaf,
            layer + "attention.v_proj." + leaf};
  return {layer + parts.at(match.str(2)) + "." + leaf};
}

}  // namespace

HubertConfig from_config_json(const Json& json) {
  HubertConfig config;
  take(json, "conv_dim", config.conv_dims);
  take(json, "conv_kernel", config.conv_kernels);
  take(json, "conv_stride", config.conv_strides);
  take(json, "conv_bias", config.conv_bias);
  take(json, "feat_extract_norm", config.conv_norm);
  take(json, "feat_extract_activation", config.conv_activation);
  take(json, "feat_proj_layer_norm", config.feature_norm);
  take(json, "hidden_size", config.dim);
  take(json, "num_hidden_layers", config.layers);
  take(json, "num_attention_heads", config.heads);
  take(json, "intermediate_size", config.feed_forward_dim);
  take(json, "hidden_act", config.activation);
  take(json, "do_stable_layer_norm", config.norm_first);
  take(json, "layer_norm_eps", config.norm_epsilon);
  take(json, "num_conv_pos_embeddings", config.position_kernel);
  take(json, "num_conv_pos_embedding_groups", config.position_groups);
  take(json, "conv_pos_batch_norm", config.position_batch_norm);
  require(!json.contains("adapter_attn_dim") || json["adapter_attn_dim"].is_null(),
          "[hubert] models with attention adapters (adapter_attn_dim) are not supported");
  // melete's own word, from preprocessor_config.json
  take(json, "do_normalize", config.standardise_wave);
  schema_of(config).check();
  config.check();
  return config;
}

HubertConfig from_fairseq(const Json& model, const Json& task) {
  HubertConfig config;
  std::string layers, extractor = "default";
  take(model, "conv_feature_layers", layers);
  if (!layers.empty()) {
    const fairseq::ConvLayers parsed = fairseq::conv_layers(layers);
    config.conv_dims = parsed.dims;
    config.conv_kernels = parsed.kernels;
    config.conv_strides = parsed.strides;
  }
  take(model, "extractor_mode", extractor);
  config.conv_norm = extractor == "layer_norm" ? "layer" : "group";
  take(model, "conv_bias", config.conv_bias);
  take(model, "encoder_embed_dim", config.dim);
  take(model, "encoder_layers", config.layers);
  take(model, "encoder_attention_heads", config.heads);
  take(model, "encoder_ffn_embed_dim", config.feed_forward_dim);
  take(model, "activation_fn", config.activation);
  take(model, "layer_norm_first", config.norm_first);
  take(model, "conv_pos", config.position_kernel);
  take(model, "conv_pos_groups", config.position_groups);
  take(model, "conv_pos_batch_norm", config.position_batch_norm);
  if (!task.is_null()) {
    take(task, "normalize", config.standardise_wave);
    take(task, "sample_rate", config.sample_rate_hz);
  }
  std::string kind = "transformer";
  take(model, "layer_type", kind);
  require(kind == "transformer", "[hubert] expected transformer layers, got `{}`", kind);
  schema_of(config).check();
  config.check();
  return config;
}

HubertConfig from_weights(const TensorMap& given, const std::string& where) {
  const TensorMap weights = as_huggingface(given);
  const auto shape = [&](const std::string& name) {
    const auto found = weights.find(name);
    require(found != weights.end(), "[{}] has no `{}`: not a HuBERT model", where, name);
    return found->second.sizes();
  };
  HubertConfig config;
  config.conv_dims.clear();
  config.conv_kernels.clear();
  config.conv_strides.clear();
  const auto conv = [](size_t i) { return fmt::format("feature_extractor.conv_layers.{}.conv.", i); };
  for (size_t i = 0; weights.count(conv(i) + "weight"); ++i) {
    const auto size = shape(conv(i) + "weight");
    config.conv_dims.push_back(size[0]);
    config.conv_kernels.push_back(size[2]);
    config.conv_strides.push_back(i == 0 ? 5 : 2);
  }
  require(!config.conv_dims.empty(), "[{}] has no `{}weight`: not a HuBERT model", where, conv(0));
  config.conv_bias = weights.count(conv(0) + "bias") > 0;
  config.conv_norm = weights.count("feature_extractor.conv_layers.1.layer_norm.weight") ? "layer" : "group";
  config.norm_first = config.standardise_wave = config.conv_norm == "layer";
  config.feature_norm = weights.count("feature_projection.layer_norm.weight") > 0;
  config.dim = shape("encoder.layer_norm.weight")[0];
  config.heads = std::max<int64_t>(1, config.dim / 64);
  config.feed_forward_dim = shape("encoder.layers.0.feed_forward.intermediate_dense.weight")[0];
  config.layers = 0;
  while (weights.count(fmt::format("encoder.layers.{}.layer_norm.weight", config.layers))) ++config.layers;
  const auto position = shape("encoder.pos_conv_embed.conv.weight");
  config.position_kernel = position[2];
  config.position_groups = position[0] / position[1];
  config.position_batch_norm = weights.count("encoder.pos_conv_embed.batch_norm.weight") > 0;
  config.check();
  return config;
}

Hubert load(HubertConfig config, const TensorMap& weights, const std::string& where, int64_t layers) {
  const int64_t stored = config.layers;
  require(layers >= 0 && layers <= stored, "[{}] has {} layers, layer {} was asked for", where, stored,
          layers);
  if (layers > 0) config.layers = layers;
  TensorMap theirs = as_huggingface(weights);
  add_derived(theirs, config);
  const auto unused = [&](const std::string& name) {
    static const std::regex heads(
        R"(^(masked_spec_embed|mask_emb|final_proj\..*|label_embs_concat|target_glu\..*|lm_head\..*|projector\..*|classifier\..*|layer_weights|w2v_encoder\..*)$)");
    static const std::regex layer(R"(^encoder\.layers\.(\d+)\..*)");
    std::smatch match;
    if (std::regex_match(name, match, layer)) return std::stoll(match.str(1)) >= config.layers;
    return std::regex_match(name, heads);
  };
  Hubert model(config);
  load_tensors(*model, translate(*model, names_of, theirs, unused, where), where);
  freeze(*model);
  return model;
}

}  // namespace melete::foreign_hubert

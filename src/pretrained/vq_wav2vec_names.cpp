#include "pretrained/vq_wav2vec_names.h"

#include <regex>

#include "core/base/error.h"
#include "nn/frozen.h"
#include "pretrained/fairseq.h"

namespace melete::fairseq {

namespace {

std::vector<std::string> names_of(const std::string& ours, const VqWav2VecConfig& config) {
  static const std::map<std::string, std::string> plain = {
      {"projection_weight", "vector_quantizer.projection.0.weight"},
      {"projection_norm_weight", "vector_quantizer.projection.1.weight"},
      {"projection_norm_bias", "vector_quantizer.projection.1.bias"},
      {"codebook", "vector_quantizer.embedding"},
  };
  if (const auto found = plain.find(ours); found != plain.end()) return {found->second};
  std::smatch match;
  require(std::regex_match(ours, match, std::regex(R"((conv|norm|logit)_(weight|bias)_(\d+))")),
          "[vq-wav2vec] no name known for `{}`", ours);
  const std::string part = match.str(1), leaf = match.str(2), index = match.str(3);
  if (part == "conv") return {fmt::format("feature_extractor.conv_layers.{}.0.{}", index, leaf)};
  if (part == "norm") return {fmt::format("feature_extractor.conv_layers.{}.2.{}", index, leaf)};
  if (config.projection_layers == 1) return {"vector_quantizer.weight_proj." + leaf};
  const bool last = std::stoll(index) + 1 == config.projection_layers;
  return {fmt::format("vector_quantizer.weight_proj.{}{}.{}", index, last ? "" : ".0", leaf)};
}

// The context network, its predictions, and the vectors that gumbel's tokens stand for.
bool not_for_tokens(const std::string& name) {
  static const std::regex parts(
      R"(^(feature_aggregator|wav2vec_predictions|project_features|dropout_feats|dropout_agg)\..*|^vector_quantizer\.vars$)");
  return std::regex_match(name, parts);
}

}  // namespace

VqWav2VecConfig vq_wav2vec_config(const nlohmann::ordered_json& model, const TensorMap& weights,
                                  const std::string& where) {
  VqWav2VecConfig config;
  const auto tensor = [&](const std::string& name) -> const at::Tensor& {
    const auto found = weights.find(name);
    require(found != weights.end(), "[{}] has no `{}`: not a vq-wav2vec model", where, name);
    return found->second;
  };
  config.conv_dims.clear();
  config.conv_kernels.clear();
  config.conv_strides.clear();
  const auto conv = [](size_t i) { return fmt::format("feature_extractor.conv_layers.{}.0.weight", i); };
  tensor(conv(0));
  for (size_t i = 0; weights.count(conv(i)); ++i) {
    const at::Tensor& weight = weights.at(conv(i));
    require(weight.dim() == 3, "[{}] `{}` is no convolution", where, conv(i));
    config.conv_dims.push_back(weight.size(0));
    config.conv_kernels.push_back(weight.size(2));
    config.conv_strides.push_back(std::max<int64_t>(1, weight.size(2) / 2));  // as published
  }
  config.affine_norm = weights.count("feature_extractor.conv_layers.0.2.weight") > 0;
  if (!model.is_null()) {
    std::string layers;
    take(model, "conv_feature_layers", layers);
    if (!layers.empty()) config.conv_strides = conv_layers(layers).strides;
    take(model, "activation", config.activation);
    take(model, "skip_connections_feat", config.skip_connections);
    take(model, "residual_scale", config.residual_scale);
    take(model, "log_compression", config.log_compression);
    take(model, "vq_groups", config.groups);
    take(model, "combine_groups", config.shared_codebook);
  }
  if (weights.count("vector_quantizer.embedding")) {
    const at::Tensor& codebook = weights.at("vector_quantizer.embedding");
    require(codebook.dim() == 3, "[{}] `vector_quantizer.embedding` has {} dimensions, expected 3", where,
            codebook.dim());
    config.quantizer = "kmeans";
    config.codebook_size = codebook.size(0);
    config.groups = config.conv_dims.back() / tensor("vector_quantizer.projection.0.weight").size(1);
    config.shared_codebook = codebook.size(1) == 1 && config.groups > 1;
  } else {
    config.quantizer = "gumbel";
    config.projection_layers = 1;
    if (!weights.count("vector_quantizer.weight_proj.weight"))
      while (weights.count(
          fmt::format("vector_quantizer.weight_proj.{}.0.weight", config.projection_layers - 1)))
        ++config.projection_layers;
    const std::string last =
        config.projection_layers == 1
            ? "vector_quantizer.weight_proj.weight"
            : fmt::format("vector_quantizer.weight_proj.{}.weight", config.projection_layers - 1);
    config.codebook_size = tensor(last).size(0) / config.groups;
  }
  schema_of(config).check();
  config.check();
  return config;
}

VqWav2Vec load_vq_wav2vec(const VqWav2VecConfig& config, const TensorMap& weights, const std::string& where) {
  VqWav2Vec model(config);
  const auto names = [&](const std::string& ours) { return names_of(ours, config); };
  load_tensors(*model, translate(*model, names, weights, not_for_tokens, where), where);
  freeze(*model);
  return model;
}

}  // namespace melete::fairseq

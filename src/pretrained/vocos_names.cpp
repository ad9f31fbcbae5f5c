#include "pretrained/vocos_names.h"

#include <regex>

#include "core/base/error.h"
#include "io/foreign_weights.h"
#include "nn/frozen.h"

namespace melete::foreign_vocos {

namespace {

const std::vector<std::pair<std::regex, std::string>>& rules() {
  const auto rule = [](const char* ours, const char* theirs) { return std::pair(std::regex(ours), theirs); };
  static const std::vector<std::pair<std::regex, std::string>> table = {
      rule(R"(^input\.)", "backbone.embed."),
      rule(R"(^norm\.)", "backbone.norm."),
      rule(R"(^blocks\.(\d+)\.depthwise\.)", "backbone.convnext.$1.dwconv."),
      rule(R"(^blocks\.(\d+)\.norm\.)", "backbone.convnext.$1.norm."),
      rule(R"(^blocks\.(\d+)\.expand\.)", "backbone.convnext.$1.pwconv1."),
      rule(R"(^blocks\.(\d+)\.contract\.)", "backbone.convnext.$1.pwconv2."),
      rule(R"(^blocks\.(\d+)\.scale$)", "backbone.convnext.$1.gamma"),
      rule(R"(^final_norm\.)", "backbone.final_layer_norm."),
      rule(R"(^output\.)", "head.out."),
      rule(R"(^codebooks$)", "feature_extractor.codebook_weights"),
  };
  return table;
}

// Windows and mel filters follow from the settings; EnCodec is read on its own.
bool not_ours(const std::string& name) {
  return name.starts_with("head.istft.") || name.starts_with("feature_extractor.mel_spec.") ||
         name.starts_with("feature_extractor.encodec.");
}

}  // namespace

std::vector<std::string> names(const std::string& ours, const VocosConfig& config) {
  static const std::regex tabled(R"(^(norm|blocks\.\d+\.norm)\.(weight|bias)$)");
  for (const auto& [pattern, replacement] : rules()) {
    if (!std::regex_search(ours, pattern)) continue;
    std::string theirs = std::regex_replace(ours, pattern, replacement);
    std::smatch match;
    if (config.bandwidths > 0 && std::regex_match(ours, match, tabled))
      theirs = theirs.substr(0, theirs.rfind('.')) +
               (match.str(2) == "weight" ? ".scale.weight" : ".shift.weight");
    return {theirs};
  }
  fail("[vocos] no name known for `{}`", ours);
}

VocosConfig from_weights(const TensorMap& weights, const std::string& where) {
  VocosConfig config;
  config.dim = weight_size(weights, "backbone.embed.weight", 0, where);
  config.input_dim = weight_size(weights, "backbone.embed.weight", 1, where);
  config.layers = numbered_below(weights, "backbone.convnext.");
  config.inner_dim = weight_size(weights, "backbone.convnext.0.pwconv1.weight", 0, where);
  if (find_weight(weights, "backbone.norm.scale.weight") != nullptr)
    config.bandwidths = weight_size(weights, "backbone.norm.scale.weight", 0, where);
  config.n_fft = weight_size(weights, "head.out.weight", 0, where) - 2;
  config.hop = config.n_fft / 4;
  if (find_weight(weights, "feature_extractor.codebook_weights") != nullptr) {
    config.codebook_rows = weight_size(weights, "feature_extractor.codebook_weights", 0, where);
    config.edges = "same";
  }
  schema_of(config).check();
  return config;
}

Vocos load(const VocosConfig& config, const TensorMap& weights, const std::string& where) {
  Vocos model(config);
  const auto theirs = [&](const std::string& ours) { return names(ours, config); };
  load_tensors(*model, translate(*model, theirs, weights, not_ours, where), where);
  freeze(*model);
  return model;
}

}  // namespace melete::foreign_vocos

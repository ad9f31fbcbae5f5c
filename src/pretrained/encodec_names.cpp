#include "pretrained/encodec_names.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <regex>

#include "core/base/error.h"
#include "nn/frozen.h"

namespace melete::foreign_encodec {

namespace {

bool is_huggingface(const TensorMap& weights) {
  return weights.lower_bound("encoder.layers.") != weights.end() &&
         weights.lower_bound("encoder.layers.")->first.starts_with("encoder.layers.");
}

// Hugging Face flattened Meta's wrappers.
std::string huggingface_name(const std::string& meta) {
  static const std::pair<std::regex, std::string> rules[] = {
      {std::regex(R"(^(en|de)coder\.model\.)"), "$1coder.layers."},
      {std::regex(R"(\.(conv\.conv|convtr\.convtr)\.)"), ".conv."},
      {std::regex(R"(\.(conv|convtr)\.norm\.)"), ".norm."},
      {std::regex(R"(^quantizer\.vq\.layers\.(\d+)\._codebook\.)"), "quantizer.layers.$1.codebook."}};
  std::string name = meta;
  for (const auto& [pattern, replacement] : rules) name = std::regex_replace(name, pattern, replacement);
  return name;
}

// One flat list a side: input, then for each ratio its units, an activation and a convolution, then the LSTM,
// an activation and the output. The decoder has its LSTM after the input and the convolution before the
// units.
struct Positions {
  explicit Positions(const EncodecConfig& config)
      : units(config.residual_layers),
        blocks(static_cast<int64_t>(config.ratios.size())),
        lstm(config.lstm_layers > 0 ? 1 : 0) {}
  int64_t encoder_unit(int64_t block, int64_t unit) const { return 1 + block * (units + 2) + unit; }
  int64_t encoder_down(int64_t block) const { return encoder_unit(block, units) + 1; }
  int64_t encoder_lstm() const { return 1 + blocks * (units + 2); }
  int64_t encoder_output() const { return encoder_lstm() + lstm + 1; }
  int64_t decoder_up(int64_t block) const { return 1 + lstm + block * (units + 2) + 1; }
  int64_t decoder_unit(int64_t block, int64_t unit) const { return decoder_up(block) + 1 + unit; }
  int64_t decoder_output() const { return 1 + lstm + blocks * (units + 2) + 1; }
  int64_t units, blocks, lstm;
};

std::string convolution_leaf(const std::string& ours, const char* wrapper) {
  static const std::map<std::string, std::string> table = {{"convolution.weight", "weight"},
                                                           {"convolution.bias", "bias"},
                                                           {"norm_weight", "norm.weight"},
                                                           {"norm_bias", "norm.bias"}};
  const std::string& leaf = table.at(ours);
  return leaf.starts_with("norm") ? fmt::format("{}.{}", wrapper, leaf)
                                  : fmt::format("{}.{}.{}", wrapper, wrapper, leaf);
}

std::string lstm_leaf(const std::string& ours) {
  static const std::map<std::string, std::string> table = {{"input_weight", "weight_ih_l"},
                                                           {"state_weight", "weight_hh_l"},
                                                           {"input_bias", "bias_ih_l"},
                                                           {"state_bias", "bias_hh_l"}};
  const size_t cut = ours.rfind('_');
  return table.at(ours.substr(0, cut)) + ours.substr(cut + 1);
}

std::vector<std::string> meta_names(const std::string& ours, const EncodecConfig& config) {
  const Positions at(config);
  std::vector<std::string> result;
  std::smatch match;
  if (ours == "codebooks") {
    for (int64_t i = 0; i < config.codebooks; ++i)
      result.push_back(fmt::format("quantizer.vq.layers.{}._codebook.embed", i));
    return result;
  }
  if (std::regex_match(ours, match, std::regex(R"((en|de)coder_lstm\.(\w+))")))
    return {fmt::format("{}coder.model.{}.lstm.{}", match.str(1),
                        match.str(1) == "en" ? at.encoder_lstm() : 1, lstm_leaf(match.str(2)))};
  if (std::regex_match(ours, match, std::regex(R"((en|de)coder_(input|output)\.(.+))"))) {
    const int64_t output = match.str(1) == "en" ? at.encoder_output() : at.decoder_output();
    return {fmt::format("{}coder.model.{}.{}", match.str(1), match.str(2) == "input" ? 0 : output,
                        convolution_leaf(match.str(3), "conv"))};
  }
  if (std::regex_match(ours, match, std::regex(R"(encoder_blocks\.(\d+)\.down\.(.+))")))
    return {fmt::format("encoder.model.{}.{}", at.encoder_down(std::stoll(match.str(1))),
                        convolution_leaf(match.str(2), "conv"))};
  if (std::regex_match(ours, match, std::regex(R"(decoder_blocks\.(\d+)\.up\.(.+))")))
    return {fmt::format("decoder.model.{}.{}", at.decoder_up(std::stoll(match.str(1))),
                        convolution_leaf(match.str(2), "convtr"))};
  require(std::regex_match(
              ours, match,
              std::regex(R"((en|de)coder_blocks\.(\d+)\.units\.(\d+)\.(first|second|shortcut)\.(.+))")),
          "[encodec] no name known for `{}`", ours);
  const int64_t block = std::stoll(match.str(2)), unit = std::stoll(match.str(3));
  static const std::map<std::string, std::string> parts = {
      {"first", "block.1"}, {"second", "block.3"}, {"shortcut", "shortcut"}};
  return {fmt::format("{}coder.model.{}.{}.{}", match.str(1),
                      match.str(1) == "en" ? at.encoder_unit(block, unit) : at.decoder_unit(block, unit),
                      parts.at(match.str(4)), convolution_leaf(match.str(5), "conv"))};
}

// Widths are divided and rounded down, so a single block may leave a choice that the wider ones decide.
// narrow: channels inside the units of blocks that are filters, 2 filters, 4 filters, ... wide
int64_t compress_of(int64_t filters, const std::vector<int64_t>& narrow, const std::string& where) {
  for (int64_t compress = filters / std::max<int64_t>(1, narrow.front()); compress >= 1; --compress) {
    bool fits = true;
    for (size_t i = 0; i < narrow.size(); ++i) fits = fits && (filters << i) / compress == narrow[i];
    if (fits) return compress;
  }
  fail("[{}] residual units of {} channels in blocks of {} and its doubles: not an EnCodec model", where,
       fmt::join(narrow, ", "), filters);
}

// What training needed of the codebooks.
bool only_for_training(const std::string& name) {
  return name.ends_with("codebook.inited") || name.ends_with("codebook.cluster_size") ||
         name.ends_with("codebook.embed_avg");
}

// Meta's names, norms folded.
TensorMap as_meta(const TensorMap& weights) {
  if (!is_huggingface(weights)) return fold_weight_norm(weights);
  TensorMap result;
  for (const auto& [name, tensor] : fold_weight_norm(weights)) {
    std::string meta = name;
    static const std::pair<std::regex, std::string> rules[] = {
        {std::regex(R"(^quantizer\.layers\.(\d+)\.codebook\.)"), "quantizer.vq.layers.$1._codebook."},
        {std::regex(R"(^(en|de)coder\.layers\.)"), "$1coder.model."}};
    for (const auto& [pattern, replacement] : rules) meta = std::regex_replace(meta, pattern, replacement);
    result.emplace(meta, tensor);
  }
  return result;
}

}  // namespace

EncodecConfig from_arguments(const nlohmann::ordered_json& arguments) {
  EncodecConfig config;
  take(arguments, "sample_rate", config.sample_rate_hz);
  take(arguments, "channels", config.input_channels);
  take(arguments, "dimension", config.dim);
  take(arguments, "n_filters", config.filters);
  take(arguments, "ratios", config.ratios);
  take(arguments, "lstm", config.lstm_layers);
  take(arguments, "n_residual_layers", config.residual_layers);
  take(arguments, "kernel_size", config.kernel);
  take(arguments, "last_kernel_size", config.last_kernel);
  take(arguments, "residual_kernel_size", config.residual_kernel);
  take(arguments, "dilation_base", config.dilation_base);
  take(arguments, "compress", config.compress);
  take(arguments, "causal", config.causal);
  take(arguments, "pad_mode", config.pad_mode);
  take(arguments, "trim_right_ratio", config.trim_right_ratio);
  bool true_skip = false;
  take(arguments, "true_skip", true_skip);
  config.shortcut_convolution = !true_skip;
  std::string norm = "weight_norm";
  take(arguments, "norm", norm);
  require(norm == "weight_norm" || norm == "none" || norm == "time_group_norm",
          "[encodec] expected norm weight_norm, none or time_group_norm, got `{}`", norm);
  config.group_norm = norm == "time_group_norm";
  take(arguments, "n_q", config.codebooks);
  take(arguments, "bins", config.codebook_size);
  double bandwidth = 0;
  take(arguments, "bandwidth", bandwidth);
  config.quantizers = config.quantizers_for(bandwidth);
  schema_of(config).check();
  return config;
}

EncodecConfig from_config_json(const nlohmann::ordered_json& json) {
  EncodecConfig config;
  take(json, "sampling_rate", config.sample_rate_hz);
  take(json, "audio_channels", config.input_channels);
  take(json, "hidden_size", config.dim);
  take(json, "num_filters", config.filters);
  take(json, "upsampling_ratios", config.ratios);
  take(json, "num_lstm_layers", config.lstm_layers);
  take(json, "num_residual_layers", config.residual_layers);
  take(json, "kernel_size", config.kernel);
  take(json, "last_kernel_size", config.last_kernel);
  take(json, "residual_kernel_size", config.residual_kernel);
  take(json, "dilation_growth_rate", config.dilation_base);
  take(json, "compress", config.compress);
  take(json, "use_causal_conv", config.causal);
  take(json, "pad_mode", config.pad_mode);
  take(json, "trim_right_ratio", config.trim_right_ratio);
  take(json, "use_conv_shortcut", config.shortcut_convolution);
  take(json, "codebook_size", config.codebook_size);
  config.group_norm = json.value("norm_type", "weight_norm") == "time_group_norm";
  std::vector<double> bandwidths = {1.5, 3, 6, 12, 24};
  take(json, "target_bandwidths", bandwidths);
  config.codebooks = 1 << 20;  // as many as the largest bandwidth has
  config.codebooks = config.quantizers_for(bandwidths.empty() ? 24 : bandwidths.back());
  config.quantizers = config.quantizers_for(6);
  schema_of(config).check();
  return config;
}

EncodecConfig from_weights(const TensorMap& weights, const std::string& where) {
  const TensorMap meta = as_meta(weights);
  const bool flat = is_huggingface(weights);
  const auto convolution = [&](const std::string& side, int64_t position, const char* wrapper) {
    return fmt::format("{}.model.{}.{}.weight", side, position,
                       flat ? std::string("conv") : fmt::format("{}.{}", wrapper, wrapper));
  };
  const auto shape = [&](const std::string& name) {
    const auto found = meta.find(name);
    require(found != meta.end(),
            "[{}] has no `{}`: not an EnCodec model; packages of Python trainers become codecs by `melete "
            "import`",
            where, name);
    return found->second.sizes();
  };
  const auto has = [&](const std::string& prefix) {
    const auto found = meta.lower_bound(prefix);
    return found != meta.end() && found->first.starts_with(prefix);
  };
  EncodecConfig config;
  const auto first = shape(convolution("encoder", 0, "conv"));
  config.filters = first[0];
  config.input_channels = first[1];
  config.kernel = first[2];
  config.group_norm = has(flat ? "encoder.model.0.norm." : "encoder.model.0.conv.norm.");
  config.residual_layers = 0;
  while (has(fmt::format("encoder.model.{}.block.", 1 + config.residual_layers))) ++config.residual_layers;
  const auto first_unit_of = [&](int64_t position) {
    return shape(fmt::format("encoder.model.{}.block.1.{}.weight", position, flat ? "conv" : "conv.conv"));
  };
  if (config.residual_layers > 0) config.residual_kernel = first_unit_of(1)[2];
  config.shortcut_convolution = has("encoder.model.1.shortcut.");
  config.ratios.clear();
  int64_t at = 1;
  std::vector<int64_t> narrow;  // channels inside the first unit of every block
  for (; meta.count(convolution("encoder", at + config.residual_layers + 1, "conv")) &&
         !has(fmt::format("encoder.model.{}.lstm.", at));
       at += config.residual_layers + 2) {
    const auto down = shape(convolution("encoder", at + config.residual_layers + 1, "conv"));
    if (down[0] != config.filters << (config.ratios.size() + 1) || down[2] % 2 != 0) break;
    config.ratios.insert(config.ratios.begin(), down[2] / 2);
    if (config.residual_layers > 0) narrow.push_back(first_unit_of(at)[0]);
  }
  if (!narrow.empty()) config.compress = compress_of(config.filters, narrow, where);
  config.lstm_layers = 0;
  while (meta.count(fmt::format("encoder.model.{}.lstm.weight_ih_l{}", at, config.lstm_layers)))
    ++config.lstm_layers;
  const auto last = shape(convolution("encoder", at + (config.lstm_layers > 0 ? 2 : 1), "conv"));
  config.dim = last[0];
  config.last_kernel = last[2];
  config.codebooks = 0;
  while (meta.count(fmt::format("quantizer.vq.layers.{}._codebook.embed", config.codebooks)))
    ++config.codebooks;
  config.codebook_size = shape("quantizer.vq.layers.0._codebook.embed")[0];
  if (config.input_channels > 1) {
    config.sample_rate_hz = 48000;
    config.causal = false;
  }
  config.quantizers = config.quantizers_for(6);
  schema_of(config).check();
  return config;
}

Encodec load(const EncodecConfig& config, const TensorMap& weights, const std::string& where) {
  Encodec model(config);
  const TensorMap folded = fold_weight_norm(weights);
  const bool flat = is_huggingface(folded);
  const auto names = [&](const std::string& ours) {
    std::vector<std::string> result = meta_names(ours, config);
    if (flat)
      for (std::string& name : result) name = huggingface_name(name);
    return result;
  };
  load_tensors(*model, translate(*model, names, folded, only_for_training, where), where);
  freeze(*model);
  return model;
}

}  // namespace melete::foreign_encodec

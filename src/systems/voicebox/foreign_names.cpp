#include "systems/voicebox/foreign_names.h"

#include <algorithm>
#include <regex>

#include "core/base/error.h"
#include "io/foreign_weights.h"
#include "nn/frozen.h"
#include "train/exporter.h"

namespace melete::voicebox_pytorch {

namespace {

const std::vector<std::pair<std::regex, std::string>>& rules() {
  const auto rule = [](const char* ours, const char* theirs) { return std::pair(std::regex(ours), theirs); };
  static const std::vector<std::pair<std::regex, std::string>> table = {
      // the network
      rule(R"(^(frame|condition)_projection\.)", "proj_in."),
      rule(R"(^time_frequencies$)", "sinu_pos_emb.0.weights"),
      rule(R"(^time_projection\.)", "sinu_pos_emb.1."),
      rule(R"(^token_embedding\.)", "to_cond_emb."),
      rule(R"(^null_(frame|condition)$)", "null_cond"),
      rule(R"(^input\.)", "to_embed."),
      rule(R"(^position_convolution\.convolution\.)", "conv_embed.dw_conv1d.0."),
      rule(R"(^output\.)", "to_pred."),
      // the duration predictor
      rule(R"(^phoneme_embedding\.)", "to_phoneme_emb."),
      // the transformer, alone or in either
      rule(R"(^((?:transformer\.)?)register_tokens$)", "$1register_tokens"),
      rule(R"(^((?:transformer\.)?)norm\.weight$)", "$1final_norm.gamma"),
      rule(R"(^((?:transformer\.)?layers\.\d+)\.skip\.)", "$1.0."),
      rule(R"(^((?:transformer\.)?layers\.\d+)\.gate_loop\.norm_scale$)", "$1.1.norm.gamma"),
      rule(R"(^((?:transformer\.)?layers\.\d+)\.gate_loop\.qkva\.)", "$1.1.to_qkva.0."),
      rule(R"(^((?:transformer\.)?layers\.\d+)\.gate_loop\.output_norm\.)", "$1.1.maybe_post_ln."),
      rule(R"(^((?:transformer\.)?layers\.\d+)\.attention_norm\.plain\.weight$)", "$1.2.gamma"),
      rule(R"(^((?:transformer\.)?layers\.\d+)\.attention_norm\.steered\.scale\.)", "$1.2.to_gamma."),
      rule(R"(^((?:transformer\.)?layers\.\d+)\.attention_norm\.steered\.shift\.)", "$1.2.to_beta."),
      rule(R"(^((?:transformer\.)?layers\.\d+)\.attention\.query_norm$)", "$1.3.q_norm.gamma"),
      rule(R"(^((?:transformer\.)?layers\.\d+)\.attention\.key_norm$)", "$1.3.k_norm.gamma"),
      rule(R"(^((?:transformer\.)?layers\.\d+)\.attention\.query_key_value\.)", "$1.3.to_qkv."),
      rule(R"(^((?:transformer\.)?layers\.\d+)\.attention\.output\.)", "$1.3.to_out."),
      rule(R"(^((?:transformer\.)?layers\.\d+)\.feed_forward_norm\.plain\.weight$)", "$1.4.gamma"),
      rule(R"(^((?:transformer\.)?layers\.\d+)\.feed_forward_norm\.steered\.scale\.)", "$1.4.to_gamma."),
      rule(R"(^((?:transformer\.)?layers\.\d+)\.feed_forward_norm\.steered\.shift\.)", "$1.4.to_beta."),
      rule(R"(^((?:transformer\.)?layers\.\d+)\.feed_forward\.input\.)", "$1.5.0."),
      rule(R"(^((?:transformer\.)?layers\.\d+)\.feed_forward\.output\.)", "$1.5.3."),
      // the aligner
      rule(R"(^key_input\.)", "aligner.key_layers.0."),
      rule(R"(^key_output\.)", "aligner.key_layers.2."),
      rule(R"(^query_input\.)", "aligner.query_layers.0."),
      rule(R"(^query_middle\.)", "aligner.query_layers.2."),
      rule(R"(^query_output\.)", "aligner.query_layers.4."),
  };
  return table;
}

constexpr const char* kFrequencies = "rotary_emb.inv_freq";

// What follows from the settings, and parts of a wrapper that are models of their own.
bool not_ours(const std::string& theirs) {
  return theirs.ends_with(kFrequencies) || theirs.starts_with("audio_enc_dec.") ||
         theirs.starts_with("aligner.");
}

// The duration predictor's output is the first of a list.
std::string in_module(const torch::nn::Module& module, const std::string& theirs) {
  const bool durations = module.as<voicebox::DurationPredictorImpl>() != nullptr;
  return durations && theirs.starts_with("to_pred.") ? "to_pred.0." + theirs.substr(8) : theirs;
}

}  // namespace

std::string name(const std::string& ours) {
  for (const auto& [pattern, replacement] : rules())
    if (std::regex_search(ours, pattern)) return std::regex_replace(ours, pattern, replacement);
  fail("[voicebox-pytorch] no name known for `{}`", ours);
}

std::vector<NamedPair> pairs(torch::nn::Module& module) {
  std::vector<NamedPair> result;
  for (const auto& [ours, tensor] : module.named_parameters().pairs())
    result.push_back({ours, in_module(module, name(ours)), tensor});
  for (const auto& [ours, tensor] : module.named_buffers().pairs())
    result.push_back({ours, in_module(module, name(ours)), tensor});
  return result;
}

void load(torch::nn::Module& module, const TensorMap& state_dict, const std::string& where) {
  const bool aligner = module.as<voicebox::AlignerImpl>() != nullptr;
  const auto names = [&](const std::string& ours) {
    return std::vector<std::string>{in_module(module, name(ours))};
  };
  const auto ignored = [&](const std::string& theirs) { return !aligner && not_ours(theirs); };
  load_tensors(module, translate(module, names, state_dict, ignored, where), where);
}

TensorMap state_dict(torch::nn::Module& module) {
  TensorMap result;
  for (const NamedPair& pair : pairs(module)) {
    // Their norms of heads have a dimension for the positions.
    const bool of_heads = pair.theirs.ends_with("_norm.gamma") && pair.tensor.dim() == 2;
    result[pair.theirs] = of_heads ? pair.tensor.detach().unsqueeze(1) : pair.tensor.detach();
  }
  for (const auto& item : module.named_modules())
    if (const auto* transformer = item.value()->as<voicebox::TransformerImpl>())
      result[item.key() + (item.key().empty() ? "" : ".") + kFrequencies] = transformer->frequencies();
  return result;
}

// PyTorch lists a module's own parameters, then its submodules, each in the order of the constructor.
void sort_as_theirs(std::vector<std::string>& names) {
  static const std::vector<std::string> order = {
      "voicebox", "text_to_semantic", "duration_predictor",
      // VoiceBox and DurationPredictor
      "null_cond", "audio_enc_dec", "proj_in", "sinu_pos_emb", "to_cond_emb", "to_phoneme_emb", "to_embed",
      "conv_embed", "dw_conv1d", "transformer", "to_pred", "aligner", "key_layers", "query_layers",
      // inside the transformer
      "register_tokens", "layers", "rotary_emb", "inv_freq", "final_norm", "norm", "to_qkva", "maybe_post_ln",
      "to_gamma", "to_beta", "q_norm", "k_norm", "to_qkv", "to_out", "gamma", "weights", "weight", "bias"};
  sort_as_registered(names, order);
}

std::vector<std::string> optimiser_order(torch::nn::Module& module, const std::string& prefix) {
  std::vector<std::string> names;
  for (const NamedPair& pair : pairs(module)) names.push_back(prefix + pair.theirs);
  sort_as_theirs(names);
  return names;
}

}  // namespace melete::voicebox_pytorch

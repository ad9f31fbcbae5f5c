#include "systems/musiclm/foreign_names.h"

#include <algorithm>
#include <numbers>
#include <regex>
#include <set>

#include "core/base/error.h"
#include "io/foreign_arguments.h"
#include "train/exporter.h"

namespace melete::musiclm_pytorch {

using musiclm::AudioTowerConfig;
using musiclm::EmbedQuantizerConfig;
using musiclm::MulanConfig;
using musiclm::TextTowerConfig;
using musiclm::TowerTransformerConfig;
using Json = nlohmann::ordered_json;

namespace {

constexpr int64_t kStretchBins =
    201;  // of a stretch that upstream makes for another spectrogram, and never uses

void apply(const Json& arguments, const ArgumentSetters& setters, const char* what) {
  apply_arguments(arguments, setters, "musiclm-pytorch", what);
}

// What it does not change here: padding is said by a mask.
void ignored(const Json&) {}

ArgumentSetters transformer_setters(TowerTransformerConfig& config) {
  return {{"dim", argument_to(config.dim)},
          {"depth", argument_to(config.depth)},
          {"heads", argument_to(config.heads)},
          {"dim_head", argument_to(config.head_dim)},
          {"attn_dropout", argument_to(config.attention_dropout)},
          {"ff_mult", argument_to(config.feed_forward_multiplier)},
          {"ff_dropout", argument_to(config.feed_forward_dropout)}};
}

struct Rule {
  std::regex ours;
  std::string theirs;
};

const std::vector<Rule>& rules() {
  const auto rule = [](const char* ours, const char* theirs) { return Rule{std::regex(ours), theirs}; };
  static const std::vector<Rule> table = {
      rule(R"(^(audio|text)\.transformer\.attention\.(\d+)\.norm\.weight$)",
           "$1.transformer.layers.$2.0.norm.learned_gamma"),
      rule(R"(^(audio|text)\.transformer\.attention\.(\d+)\.query\.)", "$1.transformer.layers.$2.0.to_q."),
      rule(R"(^(audio|text)\.transformer\.attention\.(\d+)\.key_value\.)",
           "$1.transformer.layers.$2.0.to_kv."),
      rule(R"(^(audio|text)\.transformer\.attention\.(\d+)\.output\.)",
           "$1.transformer.layers.$2.0.to_out.0."),
      rule(R"(^(audio|text)\.transformer\.attention\.(\d+)\.query_scale$)",
           "$1.transformer.layers.$2.0.q_scale"),
      rule(R"(^(audio|text)\.transformer\.attention\.(\d+)\.key_scale$)",
           "$1.transformer.layers.$2.0.k_scale"),
      rule(R"(^(audio|text)\.transformer\.feed_forward\.(\d+)\.norm\.weight$)",
           "$1.transformer.layers.$2.1.0.learned_gamma"),
      rule(R"(^(audio|text)\.transformer\.feed_forward\.(\d+)\.input\.)", "$1.transformer.layers.$2.1.1."),
      rule(R"(^(audio|text)\.transformer\.feed_forward\.(\d+)\.output\.)", "$1.transformer.layers.$2.1.4."),
      rule(R"(^(audio|text)\.norm\.weight$)", "$1.norm.learned_gamma"),
      rule(R"(^audio\.patch_norm\.)", "audio.to_patch_tokens.1."),
      rule(R"(^audio\.patch_projection\.)", "audio.to_patch_tokens.2."),
      rule(R"(^audio\.token_norm\.)", "audio.to_patch_tokens.3."),
      rule(R"(^audio\.position_bias\.layers\.0\.)", "audio.dynamic_pos_bias_mlp.0."),
      rule(R"(^audio\.position_bias\.layers\.1\.)", "audio.dynamic_pos_bias_mlp.2."),
      rule(R"(^audio\.position_bias\.layers\.2\.)", "audio.dynamic_pos_bias_mlp.4."),
      rule(R"(^text\.tokens\.)", "text.token_emb."),
      rule(R"(^text\.positions\.)", "text.pos_emb."),
      rule(R"(^text\.summary$)", "text.cls_token"),
      rule(R"(^(audio|text)_head\.)", "$1_to_latents."),
      rule(R"(^contrast\.log_scale$)", "contrast.temperatures"),
      rule(R"(^contrast\.bias$)", "contrast.bias"),
      rule(R"(^layer_contrast\.contrast\.log_scale$)",
           "multi_layer_contrastive_learning.contrast.temperatures"),
      rule(R"(^layer_contrast\.contrast\.bias$)", "multi_layer_contrastive_learning.contrast.bias"),
      rule(R"(^layer_contrast\.left\.gain$)", "multi_layer_contrastive_learning.audio_gamma"),
      rule(R"(^layer_contrast\.left\.)", "multi_layer_contrastive_learning.audio_latent_"),
      rule(R"(^layer_contrast\.right\.gain$)", "multi_layer_contrastive_learning.text_gamma"),
      rule(R"(^layer_contrast\.right\.)", "multi_layer_contrastive_learning.text_latent_"),
      rule(R"(^quantizer\.groups\.0\.stages\.(\d+)\.codebook\.initialised$)",
           "rq.layers.$1._codebook.initted"),
      rule(R"(^quantizer\.groups\.0\.stages\.(\d+)\.codebook\.counts$)",
           "rq.layers.$1._codebook.cluster_size"),
      rule(R"(^quantizer\.groups\.0\.stages\.(\d+)\.codebook\.embedding_sum$)",
           "rq.layers.$1._codebook.embed_avg"),
      rule(R"(^quantizer\.groups\.0\.stages\.(\d+)\.codebook\.embedding$)", "rq.layers.$1._codebook.embed"),
      rule(R"(^(.+)_table$)", "cond_embeddings.$1"),
  };
  return table;
}

std::string name_of(const std::string& ours) {
  for (const Rule& rule : rules())
    if (std::regex_search(ours, rule.ours)) return std::regex_replace(ours, rule.ours, rule.theirs);
  fail("[musiclm-pytorch] no name known for `{}`", ours);
}

}  // namespace

AudioTowerConfig audio_config(const Json& arguments) {
  AudioTowerConfig config;
  config.augment.as_upstream = true;
  bool spectrograms = false, time_first = true;
  auto setters = transformer_setters(config.transformer);
  setters["patch_size"] = [&](const Json& size) {
    config.patch =
        size.is_array() ? size.get<std::vector<int64_t>>() : std::vector<int64_t>(2, size.get<int64_t>());
  };
  setters["accept_spec"] = argument_to(spectrograms);
  setters["accept_spec_time_first"] = argument_to(time_first);
  setters["spec_n_fft"] = argument_to(config.spectrogram.n_fft);
  setters["spec_power"] = argument_to(config.spectrogram.power);
  setters["spec_win_length"] = argument_to(config.spectrogram.window);
  setters["spec_hop_length"] = argument_to(config.spectrogram.hop);
  setters["spec_pad"] = argument_to(config.spectrogram.padding);
  setters["spec_center"] = argument_to(config.spectrogram.centred);
  setters["spec_pad_mode"] = argument_to(config.spectrogram.edges);
  setters["spec_aug_stretch_factor"] = argument_to(config.augment.stretch);
  setters["spec_aug_freq_mask"] = argument_to(config.augment.frequency_mask);
  setters["spec_aug_time_mask"] = argument_to(config.augment.time_mask);
  setters["patch_dropout_prob"] = argument_to(config.patch_dropout);
  apply(arguments, setters, "AudioSpectrogramTransformer");
  config.input = !spectrograms ? "wave" : time_first ? "frames" : "bins";
  return config;
}

TextTowerConfig text_config(const Json& arguments) {
  TextTowerConfig config;
  auto setters = transformer_setters(config.transformer);
  setters["num_tokens"] = argument_to(config.vocabulary);
  setters["max_seq_len"] = argument_to(config.window);
  setters["pad_id"] = ignored;
  apply(arguments, setters, "TextTransformer");
  return config;
}

MulanConfig mulan_config(const Json& audio, const Json& text, const Json& mulan) {
  MulanConfig config;
  config.audio = audio_config(audio);
  config.text = text_config(text);
  bool decoupled = true, sigmoid = false, hierarchical = false;
  int64_t layers = -1;
  apply(mulan,
        {{"dim_latent", argument_to(config.dim)},
         {"decoupled_contrastive_learning", argument_to(decoupled)},
         {"sigmoid_contrastive_loss", argument_to(sigmoid)},
         {"hierarchical_contrastive_loss", argument_to(hierarchical)},
         {"hierarchical_contrastive_loss_layers", argument_to(layers)}},
        "MuLaN");
  config.contrast.kind = sigmoid ? "sigmoid" : decoupled ? "decoupled" : "softmax";
  config.contrast_layers = hierarchical ? layers : 0;
  return config;
}

EmbedQuantizerConfig quantizer_config(const Json& arguments, int64_t dim) {
  EmbedQuantizerConfig config;
  config.dim = dim;
  config.kmeans_in_eval = true;
  apply(arguments,
        {{"conditioning_dims", argument_to(config.stage_dims)},
         {"rq_num_quantizers", argument_to(config.quantizers)},
         {"rq_ema_decay", argument_to(config.decay)},
         {"codebook_size", argument_to(config.codebook_size)},
         {"namespaces", argument_to(config.stages)}},
        "MuLaNEmbedQuantizer");
  return config;
}

ContrastConfig softmax_config(const Json& arguments) {
  ContrastConfig config;
  bool decoupled = false;
  apply(arguments,
        {{"layers", ignored},
         {"decoupled_contrastive_learning", argument_to(decoupled)},
         {"init_temp", argument_to(config.scale)}},
        "SoftmaxContrastiveLearning");
  config.kind = decoupled ? "decoupled" : "softmax";
  return config;
}

ContrastConfig sigmoid_config(const Json& arguments) {
  ContrastConfig config;
  config.kind = "sigmoid";
  apply(arguments,
        {{"layers", ignored},
         {"init_temp", argument_to(config.scale)},
         {"init_bias", argument_to(config.bias)}},
        "SigmoidContrastiveLearning");
  return config;
}

std::vector<NamedPair> pairs(const torch::nn::Module& module, const Place& place) {
  // In the tables a part has its place inside MuLaN; whatever stands before MuLaN is in neither.
  const bool part = !place.ours.empty();
  std::vector<NamedPair> result;
  const auto add = [&](const std::string& ours, const at::Tensor& tensor) {
    const std::string theirs = name_of(place.ours + ours);
    require(!part || theirs.starts_with(place.theirs), "[musiclm-pytorch] `{}` does not stand below `{}`",
            theirs, place.theirs);
    result.push_back({ours, part ? theirs.substr(place.theirs.size()) : place.theirs + theirs, tensor});
  };
  for (const auto& item : module.named_parameters()) add(item.key(), item.value());
  for (const auto& item : module.named_buffers()) add(item.key(), item.value());
  return result;
}

bool is_derived(const std::string& theirs) {
  for (const char* end :
       {"spec.window", "aug.0.phase_advance", "text_layers_indices", "audio_layers_indices"})
    if (theirs.ends_with(end)) return true;
  return false;
}

TensorMap derived_tensors(const MulanConfig& config) {
  TensorMap made;
  made["audio.spec.window"] = at::hann_window(config.audio.spectrogram.window, at::kFloat);
  made["audio.aug.0.phase_advance"] =
      at::linspace(0, std::numbers::pi * config.audio.augment.stretch, kStretchBins, at::kFloat).unsqueeze(1);
  if (config.contrast_layers == 0) return made;
  const int64_t audio = config.audio.transformer.depth, text = config.text.transformer.depth;
  const int64_t layers = config.contrast_layers < 0 ? std::min(audio, text) - 1 : config.contrast_layers;
  made["audio_layers_indices"] = at::tensor(musiclm::spread_layers(layers, audio), at::kLong);
  made["text_layers_indices"] = at::tensor(musiclm::spread_layers(layers, text), at::kLong);
  return made;
}

void load(torch::nn::Module& module, const TensorMap& state_dict, const Place& place,
          const std::vector<std::string>& others) {
  const at::NoGradGuard no_grad;
  std::set<std::string> used;
  for (const NamedPair& pair : pairs(module, place)) {
    const auto found = state_dict.find(pair.theirs);
    require(found != state_dict.end(), "[musiclm-pytorch] the file has no `{}` (ours: `{}`)", pair.theirs,
            pair.ours);
    // Their codebooks have a leading dimension of one.
    require(found->second.numel() == pair.tensor.numel(), "[musiclm-pytorch] `{}` has {} values, expected {}",
            pair.theirs, found->second.numel(), pair.tensor.numel());
    pair.tensor.copy_(found->second.reshape(pair.tensor.sizes()));
    used.insert(pair.theirs);
  }
  for (const auto& [name, tensor] : state_dict) {
    const bool elsewhere = std::any_of(others.begin(), others.end(),
                                       [&](const std::string& prefix) { return name.starts_with(prefix); });
    require(used.count(name) || is_derived(name) || elsewhere,
            "[musiclm-pytorch] `{}` has no place in this model", name);
  }
}

TensorMap state_dict(const musiclm::Mulan& model) {
  TensorMap result = derived_tensors(model->config());
  for (const NamedPair& pair : pairs(*model)) result[pair.theirs] = pair.tensor.detach();
  return result;
}

// PyTorch lists a module's own parameters, then its buffers, then its submodules, each in the order of the
// constructor.
void sort_as_theirs(std::vector<std::string>& names) {
  static const std::vector<std::string> order = {"text_layers_indices",
                                                 "audio_layers_indices",
                                                 "cls_token",
                                                 "audio_gamma",
                                                 "audio_latent_weight",
                                                 "audio_latent_bias",
                                                 "text_gamma",
                                                 "text_latent_weight",
                                                 "text_latent_bias",
                                                 "audio",
                                                 "token_emb",
                                                 "pos_emb",
                                                 "to_patch_tokens",
                                                 "spec",
                                                 "aug",
                                                 "transformer",
                                                 "text",
                                                 "layers",
                                                 "q_scale",
                                                 "k_scale",
                                                 "norm",
                                                 "to_q",
                                                 "to_kv",
                                                 "to_out",
                                                 "dynamic_pos_bias_mlp",
                                                 "text_to_latents",
                                                 "audio_to_latents",
                                                 "temperatures",
                                                 "contrast",
                                                 "multi_layer_contrastive_learning",
                                                 "learned_gamma",
                                                 "weight",
                                                 "bias",
                                                 "window",
                                                 "phase_advance"};
  sort_as_registered(names, order);
}

}  // namespace melete::musiclm_pytorch

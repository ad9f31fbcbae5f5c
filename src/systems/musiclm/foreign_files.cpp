#include "systems/musiclm/foreign_files.h"

#include <cmath>
#include <numbers>

#include "core/base/error.h"
#include "io/foreign_weights.h"

namespace melete::musiclm_pytorch {

using Json = nlohmann::ordered_json;

namespace {

int64_t size_of(const TensorMap& state, const std::string& name, int64_t dimension) {
  return weight_size(state, name, dimension, "musiclm-pytorch");
}

// Two thirds of so many times dim are `inner`; upstream's default where it fits.
Json multiplier_of(int64_t inner, int64_t dim) {
  const auto fits = [&](double multiplier) {
    return static_cast<int64_t>(static_cast<double>(dim) * multiplier * 2 / 3) == inner;
  };
  for (const int64_t whole : {4, 1, 2, 3, 5, 6, 7, 8})
    if (fits(static_cast<double>(whole))) return whole;
  // Half a unit more, so that rounding down gives it back.
  return (static_cast<double>(inner) + 0.5) * 1.5 / static_cast<double>(dim);
}

Json tower_arguments(const TensorMap& state, const std::string& tower) {
  const std::string layers = tower + ".transformer.layers.", first = layers + "0.";
  const int64_t dim = size_of(state, first + "0.to_q.weight", 1);
  const int64_t inner = size_of(state, first + "0.to_q.weight", 0);
  const int64_t head_dim = size_of(state, first + "0.q_scale", 0);
  require(inner % head_dim == 0,
          "[musiclm-pytorch] `{}0.to_q.weight` has {} rows, heads of {} do not divide them", first, inner,
          head_dim);
  const int64_t depth = numbered_below(state, layers);
  // Before memory is taken for a model of this size, its largest weights must be there.
  for (int64_t i = 0; i < depth; ++i)
    require(size_of(state, fmt::format("{}{}.1.1.weight", layers, i), 1) == dim,
            "[musiclm-pytorch] layer {} of the {} tower is {} wide, the first {}", i, tower,
            size_of(state, fmt::format("{}{}.1.1.weight", layers, i), 1), dim);
  return {{"dim", dim},
          {"depth", depth},
          {"heads", inner / head_dim},
          {"dim_head", head_dim},
          {"ff_mult", multiplier_of(size_of(state, first + "1.4.weight", 1), dim)}};
}

// Patches are square where nobody says otherwise.
Json patch_size(const TensorMap& state, const Json& given) {
  const int64_t values = size_of(state, "audio.to_patch_tokens.2.weight", 1);
  if (given.contains("patch_size")) {
    const Json& size = given["patch_size"];
    const int64_t product = size.is_array() ? size.at(0).get<int64_t>() * size.at(1).get<int64_t>()
                                            : size.get<int64_t>() * size.get<int64_t>();
    require(product == values, "[musiclm-pytorch] patch_size {} makes {} values, the weights take {}",
            size.dump(), product, values);
    return size;
  }
  const auto side = static_cast<int64_t>(std::llround(std::sqrt(static_cast<double>(values))));
  require(side * side == values,
          "[musiclm-pytorch] patches of {} values are not square; give --arguments audio.patch_size=[16,10]",
          values);
  return side;
}

Json audio_arguments(const TensorMap& state, const Json& given) {
  Json made = tower_arguments(state, "audio");
  made["patch_size"] = patch_size(state, given);
  if (const at::Tensor* window = find_weight(state, "audio.spec.window"))
    made["spec_win_length"] = window->numel();
  if (const at::Tensor* advance = find_weight(state, "audio.aug.0.phase_advance");
      advance && advance->numel() > 1) {
    const double last = advance->to(at::kDouble).flatten()[-1].item<double>() / std::numbers::pi;
    made["spec_aug_stretch_factor"] = std::round(last * 1e5) / 1e5;
  }
  return made;
}

Json text_arguments(const TensorMap& state) {
  Json made = tower_arguments(state, "text");
  made["num_tokens"] = size_of(state, "text.token_emb.weight", 0);
  made["max_seq_len"] = size_of(state, "text.pos_emb.weight", 0);
  return made;
}

Json mulan_arguments(const TensorMap& state) {
  const std::string layers = "multi_layer_contrastive_learning.audio_latent_weight";
  Json made = {{"dim_latent", size_of(state, "audio_to_latents.weight", 0)},
               {"sigmoid_contrastive_loss", find_weight(state, "contrast.bias") != nullptr}};
  made["hierarchical_contrastive_loss"] = find_weight(state, layers) != nullptr;
  if (find_weight(state, layers)) made["hierarchical_contrastive_loss_layers"] = size_of(state, layers, 0);
  return made;
}

// Those that a person gave go before what was seen, unless they contradict it.
void lay_over(Json& seen, const Json& given, const std::string& where) {
  for (const auto& [name, value] : given.items()) {
    if (const auto known = seen.find(name); known != seen.end())
      require(*known == value || (known->is_number_float() && value.is_number()),
              "[musiclm-pytorch] the given arguments say {}{} = {}, the weights say {}", where, name,
              value.dump(), known->dump());
    seen[name] = value;
  }
}

Json tower_arguments(const musiclm::TowerTransformerConfig& config) {
  return {{"dim", config.dim},
          {"depth", config.depth},
          {"heads", config.heads},
          {"dim_head", config.head_dim},
          {"attn_dropout", config.attention_dropout},
          {"ff_dropout", config.feed_forward_dropout},
          {"ff_mult", config.feed_forward_multiplier}};
}

}  // namespace

MulanArguments arguments_of_file(const TensorMap& state, const Json& given, std::vector<std::string>& notes) {
  Json audio = Json::object(), text = Json::object(), whole = Json::object();
  for (const auto& [name, value] : given.items()) {
    if (name.starts_with("audio."))
      audio[name.substr(6)] = value;
    else if (name.starts_with("text."))
      text[name.substr(5)] = value;
    else
      whole[name] = value;
  }
  MulanArguments made{audio_arguments(state, audio), text_arguments(state), mulan_arguments(state)};
  lay_over(made.audio, audio, "audio.");
  lay_over(made.text, text, "text.");
  lay_over(made.mulan, whole, "");
  if (!audio.contains("spec_n_fft"))
    notes.push_back(
        "the file holds no settings: sizes were taken from its weights; spec_n_fft, spec_hop_length, masks "
        "and "
        "dropouts are upstream's defaults (--arguments audio.spec_n_fft=512 says otherwise)");
  return made;
}

MulanArguments arguments_of(const musiclm::MulanConfig& config) {
  MulanArguments made;
  const musiclm::AudioTowerConfig& audio = config.audio;
  made.audio = tower_arguments(audio.transformer);
  made.audio["patch_size"] = audio.patch;
  made.audio["accept_spec"] = audio.input != "wave";
  made.audio["accept_spec_time_first"] = audio.input != "bins";
  made.audio["spec_n_fft"] = audio.spectrogram.n_fft;
  made.audio["spec_power"] = audio.spectrogram.power;
  made.audio["spec_win_length"] = audio.spectrogram.window;
  made.audio["spec_hop_length"] = audio.spectrogram.hop_samples();
  made.audio["spec_pad"] = audio.spectrogram.padding;
  made.audio["spec_center"] = audio.spectrogram.centred;
  made.audio["spec_pad_mode"] = audio.spectrogram.edges;
  made.audio["spec_aug_stretch_factor"] = audio.augment.stretch;
  made.audio["spec_aug_freq_mask"] = audio.augment.frequency_mask;
  made.audio["spec_aug_time_mask"] = audio.augment.time_mask;
  made.audio["patch_dropout_prob"] = audio.patch_dropout;
  made.text = tower_arguments(config.text.transformer);
  made.text["num_tokens"] = config.text.vocabulary;
  made.text["max_seq_len"] = config.text.window;
  made.mulan = {{"dim_latent", config.dim},
                {"decoupled_contrastive_learning", config.contrast.kind == "decoupled"},
                {"sigmoid_contrastive_loss", config.contrast.kind == "sigmoid"},
                {"hierarchical_contrastive_loss", config.contrast_layers != 0}};
  if (config.contrast_layers > 0) made.mulan["hierarchical_contrastive_loss_layers"] = config.contrast_layers;
  return made;
}

}  // namespace melete::musiclm_pytorch

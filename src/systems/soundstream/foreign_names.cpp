#include "systems/soundstream/foreign_names.h"

#include <regex>
#include <set>

#include "core/base/error.h"
#include "io/foreign_arguments.h"

namespace melete::audiolm_pytorch {

namespace {

using Json = nlohmann::ordered_json;

// A scalar stands for a list of one.
std::vector<int64_t> list(const Json& value) {
  return value.is_array() ? value.get<std::vector<int64_t>>() : std::vector<int64_t>{value.get<int64_t>()};
}

void apply(const Json& arguments, const ArgumentSetters& setters, const char* what) {
  apply_arguments(arguments, setters, "audiolm-pytorch", what);
}

std::function<void(const Json&)> to_list(std::vector<int64_t>& target) {
  return [&target](const Json& value) { target = list(value); };
}

ArgumentSetters quantizer_setters(QuantizerConfig& q) {
  const auto ignored = [](const Json&) {};
  const auto only = [](const char* name, const Json& value) {
    return [name, value](const Json& given) {
      require(given.is_null() || given == value,
              "[audiolm-pytorch] residual quantizers need {} = {} there, got {}", name, value.dump(),
              given.dump());
    };
  };
  return {
      {"num_quantizers", argument_to(q.quantizers)},
      {"codebook_size", argument_to(q.codebook_size)},
      {"codebook_dim", argument_to(q.codebook_dim)},
      {"groups", argument_to(q.groups)},
      {"levels", to_list(q.levels)},
      {"decay", argument_to(q.decay)},
      {"commitment_weight", argument_to(q.commitment_weight)},
      {"kmeans_init", argument_to(q.kmeans_init)},
      {"kmeans_iters", argument_to(q.kmeans_iterations)},
      {"threshold_ema_dead_code", argument_to(q.dead_code_threshold)},
      {"use_cosine_sim", argument_to(q.cosine)},
      {"shared_codebook", argument_to(q.shared_codebook)},
      {"stochastic_sample_codes", argument_to(q.stochastic)},
      {"sample_codebook_temp", argument_to(q.temperature)},
      {"quantize_dropout", argument_to(q.dropout)},
      {"quantize_dropout_cutoff_index", argument_to(q.dropout_keep)},
      {"quantize_dropout_multiple_of", argument_to(q.dropout_multiple_of)},
      {"entropy_loss_weight", argument_to(q.entropy_weight)},
      {"commitment_loss_weight", argument_to(q.lfq_commitment_weight)},
      {"diversity_gamma", argument_to(q.diversity)},
      {"frac_per_sample_entropy", argument_to(q.entropy_fraction)},
      {"eps", argument_to(q.epsilon)},
      {"commitment_use_cross_entropy_loss",
       [&q](const Json& on) {
         q.cross_entropy_commitment = q.commitment_gradient_of_moved = on.get<bool>();
       }},
      {"orthogonal_reg_weight", argument_to(q.orthogonal_weight)},
      {"orthogonal_reg_active_codes_only", argument_to(q.orthogonal_active_only)},
      {"orthogonal_reg_max_codes", argument_to(q.orthogonal_max_codes)},
      {"straight_through", argument_to(q.differentiable_choice)},
      {"reinmax", argument_to(q.reinmax)},
      {"sync_update_v", argument_to(q.synchronous_update)},
      {"ema_update",
       [&q](const Json& on) {
         if (!on.get<bool>() && q.codebook_update == "average") q.codebook_update = "none";
       }},
      {"learnable_codebook",
       [&q](const Json& on) {
         if (on.get<bool>()) q.codebook_update = "gradient";
       }},
      {"affine_param", argument_to(q.affine)},
      {"affine_param_batch_decay", argument_to(q.affine_vectors_decay)},
      {"affine_param_codebook_decay", argument_to(q.affine_codes_decay)},
      {"heads", only("heads", 1)},
      {"separate_codebook_per_head", ignored},  // of the one head
      {"num_codebooks", only("num_codebooks", 1)},
      {"keep_num_codebooks_dim", only("keep_num_codebooks_dim", false)},
      {"channel_last", only("channel_last", true)},
      {"accept_image_fmap", only("accept_image_fmap", false)},
      {"freeze_codebook", ignored},  // kept, and never looked at, as is the scale of FSQ
      {"scale", ignored},
      {"sync_kmeans", ignored},
      {"sync_codebook", ignored},
      {"sync_affine_param", ignored},
  };
}

// Names below one block or layer, ours on the left. `$` stands for .weight, .bias or nothing.
const std::vector<std::pair<std::string, std::string>>& leaf_names() {
  static const std::vector<std::pair<std::string, std::string>> table = {
      // residual units
      {"dilated", "fn.0.conv"},
      {"pointwise", "fn.2.conv"},
      {"squeeze_excite.squeeze", "fn.4.net.0"},
      {"squeeze_excite.excite", "fn.4.net.2"},
      // gate loop
      {"gate_loop.norm_scale", "fn.fn.norm.gamma"},
      {"gate_loop.qkva", "fn.fn.to_qkva.0"},
  };
  return table;
}

const std::vector<std::pair<std::regex, std::string>>& rules() {
  const auto rule = [](const char* ours, const char* theirs) { return std::pair(std::regex(ours), theirs); };
  static const std::vector<std::pair<std::regex, std::string>> table = {
      rule(R"(^codec\.(en|de)coder_attention\.attention\.(\d+)\.norm\.)", "$1coder_attn.layers.$2.0.norm."),
      rule(R"(^codec\.(en|de)coder_attention\.attention\.(\d+)\.query_scale$)",
           "$1coder_attn.layers.$2.0.q_scale"),
      rule(R"(^codec\.(en|de)coder_attention\.attention\.(\d+)\.key_scale$)",
           "$1coder_attn.layers.$2.0.k_scale"),
      rule(R"(^codec\.(en|de)coder_attention\.attention\.(\d+)\.qkv\.)", "$1coder_attn.layers.$2.0.to_qkv."),
      rule(R"(^codec\.(en|de)coder_attention\.attention\.(\d+)\.gate\.)",
           "$1coder_attn.layers.$2.0.to_v_gate.0."),
      rule(R"(^codec\.(en|de)coder_attention\.attention\.(\d+)\.output\.)",
           "$1coder_attn.layers.$2.0.to_out."),
      rule(R"(^codec\.(en|de)coder_attention\.feed_forward\.(\d+)\.norm\.)", "$1coder_attn.layers.$2.1.0."),
      rule(R"(^codec\.(en|de)coder_attention\.feed_forward\.(\d+)\.input\.)", "$1coder_attn.layers.$2.1.1."),
      rule(R"(^codec\.(en|de)coder_attention\.feed_forward\.(\d+)\.output\.)", "$1coder_attn.layers.$2.1.4."),
      rule(R"(^codec\.(en|de)coder_attention\.position_bias\.layers\.0\.)", "$1coder_attn.pos_bias.mlp.0."),
      rule(R"(^codec\.(en|de)coder_attention\.position_bias\.layers\.1\.)", "$1coder_attn.pos_bias.mlp.2."),
      rule(R"(^codec\.(en|de)coder_attention\.position_bias\.layers\.2\.)", "$1coder_attn.pos_bias.mlp.4."),
      rule(R"(^codec\.(en|de)coder_film\.condition\.)", "$1coder_film.to_cond."),
      rule(R"(^codec\.quantizer\.groups\.(\d+)\.project_)", "rq.rvqs.$1.project_"),
      rule(R"(^codec\.quantizer\.groups\.(\d+)\.stages\.(\d+)\.codebook\.embedding$)",
           "rq.rvqs.$1.layers.$2._codebook.embed"),
      rule(R"(^codec\.quantizer\.groups\.(\d+)\.stages\.(\d+)\.codebook\.embedding_sum$)",
           "rq.rvqs.$1.layers.$2._codebook.embed_avg"),
      rule(R"(^codec\.quantizer\.groups\.(\d+)\.stages\.(\d+)\.codebook\.counts$)",
           "rq.rvqs.$1.layers.$2._codebook.cluster_size"),
      rule(R"(^codec\.quantizer\.groups\.(\d+)\.stages\.(\d+)\.codebook\.initialised$)",
           "rq.rvqs.$1.layers.$2._codebook.initted"),
      rule(R"(^codec\.quantizer\.groups\.(\d+)\.stages\.(\d+)\.codebook\.vectors_(mean|variance)$)",
           "rq.rvqs.$1.layers.$2._codebook.batch_$3"),
      rule(R"(^codec\.quantizer\.groups\.(\d+)\.stages\.(\d+)\.codebook\.codes_(mean|variance)$)",
           "rq.rvqs.$1.layers.$2._codebook.codebook_$3"),
      rule(R"(^discriminators\.stft\.input\.)", "stft_discriminator.init_conv."),
      rule(R"(^discriminators\.stft\.units\.(\d+)\.first\.)", "stft_discriminator.layers.$1.0.fn.0."),
      rule(R"(^discriminators\.stft\.units\.(\d+)\.threshold$)", "stft_discriminator.layers.$1.0.fn.1.b"),
      rule(R"(^discriminators\.stft\.units\.(\d+)\.second\.)", "stft_discriminator.layers.$1.0.fn.2."),
      rule(R"(^discriminators\.stft\.units\.(\d+)\.down\.)", "stft_discriminator.layers.$1.1."),
      rule(R"(^discriminators\.stft\.output\.)", "stft_discriminator.final_conv."),
      rule(R"(^discriminators\.scales\.(\d+)\.input\.)", "discriminators.$1.init_conv."),
      rule(R"(^discriminators\.scales\.(\d+)\.layers\.(\d+)\.)", "discriminators.$1.conv_layers.$2.0."),
      rule(R"(^discriminators\.scales\.(\d+)\.hidden\.)", "discriminators.$1.final_conv.0."),
      rule(R"(^discriminators\.scales\.(\d+)\.output\.)", "discriminators.$1.final_conv.2."),
  };
  return table;
}

// Their encoder and decoder are one flat sequence: input, then a block (and a gate loop) each, then output.
std::string codec_name(const std::string& ours, const SoundStreamConfig& config) {
  const int64_t step = config.gate_loop ? 2 : 1;
  const int64_t last = 1 + static_cast<int64_t>(config.strides.size()) * step;
  std::smatch match;
  if (std::regex_match(ours, match, std::regex(R"(codec\.(en|de)coder_(input|output)\.(\w+))")))
    return fmt::format("{}coder.{}.conv.{}", match.str(1), match.str(2) == "input" ? 0 : last, match.str(3));
  if (!std::regex_match(ours, match, std::regex(R"(codec\.(en|de)coder_blocks\.(\d+)\.(.+))"))) return {};

  const std::string side = match.str(1);
  const bool encoder = side == "en";
  const int64_t at = 1 + std::stoll(match.str(2)) * step;
  std::string rest = match.str(3);
  if (rest.starts_with("down.")) return fmt::format("encoder.{}.3.conv.{}", at, rest.substr(5));
  if (rest.starts_with("up.")) return fmt::format("decoder.{}.0.conv.{}", at, rest.substr(3));
  const bool unit = std::regex_match(rest, match, std::regex(R"(units\.(\d+)\.(.+))"));
  const int64_t unit_at = unit ? std::stoll(match.str(1)) + (encoder ? 0 : 1) : 0;
  if (unit) rest = match.str(2);
  for (const auto& [left, right] : leaf_names())
    if (rest == left || rest.starts_with(left + ".")) {
      const std::string tail = right + rest.substr(left.size());
      return unit ? fmt::format("{}coder.{}.{}.{}", side, at, unit_at, tail)
                  : fmt::format("{}coder.{}.{}", side, at + 1, tail);
    }
  return {};
}

// What their state_dict holds besides weights: tables that we compute, and codebooks that are shared.
bool derived(const std::string& theirs, const SoundStreamConfig& config) {
  static const std::regex table(
      R"(^mel_spec_transforms\.|\.rel_pos\.inv_freq$|^rq\.rvqs\.\d+\.layers\.\d+\.mask$|_needs_init$)");
  static const std::regex later_codebook(R"(^rq\.rvqs\.\d+\.layers\.[1-9]\d*\._codebook\.)");
  return std::regex_search(theirs, table) ||
         (config.quantizer.shared_codebook && std::regex_search(theirs, later_codebook));
}

}  // namespace

QuantizerConfig residual_vq_config(const Json& arguments) {
  QuantizerConfig config;
  config.dropout = false;
  config.dropout_keep = 0;
  config.decay = 0.8;
  config.kmeans_init = false;
  config.dead_code_threshold = 0;
  config.gradient_of_every_stage = config.kmeans_in_eval = true;
  auto setters = quantizer_setters(config);
  setters["dim"] = [](const Json&) {};
  apply(arguments, setters, "ResidualVQ");
  return config;
}

namespace {

// "torch.hann_window" -> "hann"
std::string window_shape(const Json& function) {
  std::string name = function.get<std::string>();
  if (name.starts_with("torch.")) name = name.substr(6);
  if (name == "ones") return "rectangular";
  return name.ends_with("_window") ? name.substr(0, name.size() - 7) : name;
}

}  // namespace

StftDiscriminatorConfig stft_discriminator_config(const Json& arguments) {
  StftDiscriminatorConfig config;
  apply(arguments,
        {{"channels", argument_to(config.channels)},
         {"chan_mults", to_list(config.channel_multiples)},
         {"strides",
          [&](const Json& pairs) {
            config.frequency_strides.clear();
            config.time_strides.clear();
            for (const auto& pair : pairs) {
              config.frequency_strides.push_back(pair[0].get<int64_t>());
              config.time_strides.push_back(pair[1].get<int64_t>());
            }
          }},
         {"n_fft", argument_to(config.n_fft)},
         {"hop_length", argument_to(config.hop)},
         {"win_length", argument_to(config.window)},
         {"stft_window_fn", [&](const Json& name) { config.window_shape = window_shape(name); }},
         {"stft_normalized", argument_to(config.normalized)},
         {"logits_abs", argument_to(config.magnitude_logits)},
         {"input_channels", [](const Json&) {}}},
        "ComplexSTFTDiscriminator");
  return config;
}

MultiScaleDiscriminatorConfig multi_scale_config(const Json& arguments) {
  MultiScaleDiscriminatorConfig config;
  apply(arguments,
        {{"channels", argument_to(config.channels)},
         {"layers", argument_to(config.layers)},
         {"groups", to_list(config.groups)},
         {"chan_max", argument_to(config.max_channels)},
         {"input_channels", [](const Json&) {}}},
        "MultiScaleDiscriminator");
  return config;
}

SoundStreamGanConfig soundstream_config(const Json& arguments, const Json& multi_scale) {
  SoundStreamGanConfig config;
  SoundStreamConfig& codec = config.codec;
  QuantizerConfig& quantizer = codec.quantizer;
  codec.as_audiolm_pytorch = true;
  config.loss.mel.floor = 1e-20;
  quantizer.gradient_of_every_stage = quantizer.kmeans_in_eval = true;
  config.multi_scale = multi_scale_config(multi_scale);
  if (arguments.contains("complex_stft_discr_kwargs"))
    config.stft = stft_discriminator_config(arguments["complex_stft_discr_kwargs"]);
  const auto kind = [&quantizer](const char* name) {
    return [&quantizer, name](const Json& on) {
      if (on.get<bool>()) quantizer.kind = name;
    };
  };
  apply(arguments,
        {{"channels", argument_to(codec.channels)},
         {"strides", to_list(codec.strides)},
         {"channel_mults", to_list(codec.channel_multiples)},
         {"codebook_dim", argument_to(codec.dim)},
         {"codebook_size", argument_to(quantizer.codebook_size)},
         {"finite_scalar_quantizer_levels", to_list(quantizer.levels)},
         {"rq_num_quantizers", argument_to(quantizer.quantizers)},
         {"rq_commitment_weight", argument_to(quantizer.commitment_weight)},
         {"rq_ema_decay", argument_to(quantizer.decay)},
         {"rq_quantize_dropout_multiple_of", argument_to(quantizer.dropout_multiple_of)},
         {"rq_groups", argument_to(quantizer.groups)},
         {"rq_stochastic_sample_codes", argument_to(quantizer.stochastic)},
         {"rq_kwargs", [&](const Json& more) { apply(more, quantizer_setters(quantizer), "rq_kwargs"); }},
         {"use_lookup_free_quantizer", kind("lfq")},
         {"use_finite_scalar_quantizer", kind("fsq")},
         {"input_channels", argument_to(codec.input_channels)},
         {"discr_multi_scales", argument_to(config.discriminator_scales)},
         {"stft_normalized",
          [&](const Json& on) { config.stft.normalized = config.loss.mel.normalized = on.get<bool>(); }},
         {"enc_cycle_dilations", to_list(codec.encoder_dilations)},
         {"dec_cycle_dilations", to_list(codec.decoder_dilations)},
         {"multi_spectral_window_powers_of_two", to_list(config.loss.mel.window_powers)},
         {"multi_spectral_n_ffts", to_list(config.loss.mel.n_ffts)},
         {"multi_spectral_n_mels", to_list(config.loss.mel.mels)},
         {"recon_loss_weight", argument_to(config.loss.reconstruction_weight)},
         {"multi_spectral_recon_loss_weight", argument_to(config.loss.mel_weight)},
         {"adversarial_loss_weight", argument_to(config.loss.adversarial_weight)},
         {"feature_loss_weight", argument_to(config.loss.feature_weight)},
         {"quantize_dropout_cutoff_index", argument_to(quantizer.dropout_keep)},
         {"target_sample_hz", argument_to(codec.sample_rate_hz)},
         {"use_local_attn", argument_to(codec.attention)},
         {"attn_window_size", argument_to(codec.attention_window)},
         {"attn_dim_head", argument_to(codec.attention_head_dim)},
         {"attn_heads", argument_to(codec.attention_heads)},
         {"attn_depth", argument_to(codec.attention_depth)},
         {"attn_xpos_scale_base", argument_to(codec.attention_xpos_scale_base)},
         {"attn_dynamic_pos_bias", argument_to(codec.attention_position_bias)},
         {"use_gate_loop_layers", argument_to(codec.gate_loop)},
         {"squeeze_excite", argument_to(codec.squeeze_excite)},
         {"complex_stft_discr_logits_abs", argument_to(config.stft.magnitude_logits)},
         {"pad_mode", argument_to(codec.pad_mode)},
         {"stft_discriminator", [](const Json&) {}},
         {"complex_stft_discr_kwargs", [](const Json&) {}}},
        "SoundStream");
  return config;
}

std::string soundstream_name(const std::string& ours, const SoundStreamGanConfig& config) {
  std::string theirs = codec_name(ours, config.codec);
  if (!theirs.empty()) return theirs;
  for (const auto& [pattern, replacement] : rules())
    if (std::regex_search(ours, pattern)) return std::regex_replace(ours, pattern, replacement);
  fail("[audiolm-pytorch] no name known for `{}`", ours);
}

namespace {

// Whether an affine codebook has seen vectors and codes: theirs tell it in other words.
bool is_affine_flag(const std::string& ours) {
  return ours.ends_with(".codebook.vectors_begun") || ours.ends_with(".codebook.codes_begun");
}

}  // namespace

std::vector<NamedPair> soundstream_pairs(torch::nn::Module& module, const std::string& prefix,
                                         const SoundStreamGanConfig& config) {
  std::vector<NamedPair> pairs;
  const auto add = [&](const auto& named) {
    for (const auto& item : named) {
      const std::string ours = prefix + item.key();
      if (is_affine_flag(ours)) continue;
      pairs.push_back({ours, soundstream_name(ours, config), item.value()});
    }
  };
  add(module.named_parameters());
  add(module.named_buffers());
  return pairs;
}

bool may_be_missing(const std::string& theirs) {
  return theirs.find("_codebook.batch_") != std::string::npos;
}

void load_affine_flags(torch::nn::Module& module, const std::string& prefix, const TensorMap& state_dict,
                       const SoundStreamGanConfig& config, const std::string& their_prefix) {
  const at::NoGradGuard no_grad;
  for (const auto& item : module.named_buffers()) {
    const std::string ours = prefix + item.key();
    if (!is_affine_flag(ours)) continue;
    const std::string tail = "_begun";
    const std::string mean = ours.substr(0, ours.size() - tail.size()) + "_mean";
    const std::string theirs = soundstream_name(mean, config).substr(their_prefix.size());
    const auto waiting = state_dict.find(theirs + "_needs_init");
    const bool begun =
        waiting == state_dict.end() ? state_dict.count(theirs) > 0 : waiting->second.eq(0).all().item<bool>();
    item.value().fill_(begun ? 1 : 0);
  }
}

namespace {

void load(SoundStreamGan& model, const TensorMap& state_dict, bool discriminators) {
  const at::NoGradGuard no_grad;
  const SoundStreamGanConfig& config = model->config();
  std::set<std::string> used;
  for (const NamedPair& pair : soundstream_pairs(*model, "", config)) {
    const auto found = state_dict.find(pair.theirs);
    if (!discriminators && found == state_dict.end() && pair.ours.starts_with("discriminators.")) continue;
    if (found == state_dict.end() && may_be_missing(pair.theirs)) continue;
    require(found != state_dict.end(), "[audiolm-pytorch] the file has no `{}` (ours: `{}`)", pair.theirs,
            pair.ours);
    // Their codebooks have a leading dimension of one.
    require(found->second.numel() == pair.tensor.numel(), "[audiolm-pytorch] `{}` has {} values, expected {}",
            pair.theirs, found->second.numel(), pair.tensor.numel());
    pair.tensor.copy_(found->second.reshape(pair.tensor.sizes()));
    used.insert(pair.theirs);
  }
  for (const auto& [name, tensor] : state_dict)
    require(used.count(name) || derived(name, config.codec),
            "[audiolm-pytorch] `{}` has no place in this model", name);
  load_affine_flags(*model, "", state_dict, config, "");
}

}  // namespace

void load_soundstream(SoundStreamGan& model, const TensorMap& state_dict) {
  load(model, state_dict, true);
}

void load_codec_weights(SoundStreamGan& model, const TensorMap& state_dict) {
  load(model, state_dict, false);
}

}  // namespace melete::audiolm_pytorch

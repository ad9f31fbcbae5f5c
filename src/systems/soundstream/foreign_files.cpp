#include "systems/soundstream/foreign_files.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <regex>

#include "core/base/error.h"
#include "io/foreign_weights.h"
#include "nn/spectrum.h"
#include "train/exporter.h"

namespace melete::audiolm_pytorch {

namespace {

using Json = nlohmann::ordered_json;

int64_t size_of(const TensorMap& state, const std::string& name, int64_t dimension) {
  return weight_size(state, name, dimension, "audiolm-pytorch");
}

MultiScaleDiscriminatorConfig multi_scale_of(const TensorMap& state) {
  MultiScaleDiscriminatorConfig config;
  if (!find_weight(state, "discriminators.0.init_conv.weight")) return config;
  config.channels = size_of(state, "discriminators.0.init_conv.weight", 0);
  config.layers = numbered_below(state, "discriminators.0.conv_layers.");
  config.groups.clear();
  int64_t channels = config.channels;
  for (int64_t i = 0; i < config.layers; ++i) {
    const std::string name = fmt::format("discriminators.0.conv_layers.{}.0.weight", i);
    const int64_t out = size_of(state, name, 0), in_group = size_of(state, name, 1);
    require(in_group > 0 && channels % in_group == 0,
            "[audiolm-pytorch] `{}` takes {} channels, which do not split {}", name, in_group, channels);
    config.groups.push_back(channels / in_group);
    if (out < channels * 4) config.max_channels = out;
    channels = out;
  }
  return config;
}

// Everything of the architecture that shapes can tell.
Json arguments_from_weights(const TensorMap& state) {
  Json made;
  made["channels"] = size_of(state, "encoder.0.conv.weight", 0);
  made["input_channels"] = size_of(state, "encoder.0.conv.weight", 1);
  const int64_t channels = made["channels"].get<int64_t>();
  require(channels > 0, "[audiolm-pytorch] `encoder.0.conv.weight` is empty");
  std::vector<int64_t> strides, multiples;
  bool gate_loop = false;
  const int64_t count = numbered_below(state, "encoder.");
  for (int64_t i = 1; i < count; ++i) {
    const std::string down = fmt::format("encoder.{}.3.conv.weight", i);
    if (find_weight(state, down)) {
      strides.push_back(size_of(state, down, 2) / 2);
      multiples.push_back(size_of(state, down, 0) / channels);
    }
    gate_loop = gate_loop || find_weight(state, fmt::format("encoder.{}.fn.fn.norm.gamma", i)) != nullptr;
  }
  made["strides"] = strides;
  made["channel_mults"] = multiples;
  made["use_gate_loop_layers"] = gate_loop;
  made["squeeze_excite"] = find_weight(state, "encoder.1.0.fn.4.net.0.weight") != nullptr;
  made["codebook_dim"] = size_of(state, fmt::format("encoder.{}.conv.weight", count - 1), 0);
  made["rq_groups"] = std::max<int64_t>(1, numbered_below(state, "rq.rvqs."));
  if (find_weight(state, "rq.rvqs.0.layers.0._codebook.embed")) {
    made["rq_num_quantizers"] = numbered_below(state, "rq.rvqs.0.layers.");
    made["codebook_size"] = size_of(state, "rq.rvqs.0.layers.0._codebook.embed", 1);
  }
  const bool attention = find_weight(state, "encoder_attn.layers.0.0.to_qkv.weight") != nullptr;
  made["use_local_attn"] = attention;
  if (attention) {
    made["attn_depth"] = numbered_below(state, "encoder_attn.layers.");
    made["attn_dim_head"] = size_of(state, "encoder_attn.layers.0.0.q_scale", 0);
    const int64_t inner = size_of(state, "encoder_attn.layers.0.0.to_out.weight", 1);
    made["attn_heads"] = inner / std::max<int64_t>(1, made["attn_dim_head"].get<int64_t>());
    made["attn_dynamic_pos_bias"] = find_weight(state, "encoder_attn.pos_bias.mlp.0.weight") != nullptr;
  }
  return made;
}

void check_plain_numbers(const SoundStreamGanConfig& config) {
  // Settings that no weight speaks for, but that decide how much memory is taken.
  for (const int64_t power : config.loss.mel.window_powers)
    require(power <= 20, "[audiolm-pytorch] a window of 2^{} samples in the file's settings", power);
  for (const int64_t size : config.loss.mel.n_ffts)
    require(size <= (1 << 20), "[audiolm-pytorch] a transform of {} samples in the file's settings", size);
  for (const int64_t size : config.loss.mel.mels)
    require(size <= (1 << 14), "[audiolm-pytorch] {} mel bands in the file's settings", size);
  require(config.stft.n_fft <= (1 << 20),
          "[audiolm-pytorch] a transform of {} samples in the file's settings", config.stft.n_fft);
  require(config.codec.quantizer.quantizers <= 4096, "[audiolm-pytorch] {} quantizers in the file's settings",
          config.codec.quantizer.quantizers);
}

Json tuple(const std::vector<int64_t>& values) {
  return {{"$tuple", values}};
}

}  // namespace

SoundStreamGanConfig soundstream_config_of_file(Json arguments, const TensorMap& state, const Json& given,
                                                std::vector<std::string>& notes) {
  const Json seen = arguments_from_weights(state);
  if (arguments.is_null()) {
    arguments = seen;
    const bool codebooks = find_weight(state, "rq.rvqs.0.layers.0._codebook.embed") != nullptr;
    require(codebooks,
            "[audiolm-pytorch] a state_dict without settings and without codebooks: nothing tells how it "
            "quantizes; try saving the model with soundstream.save(path)");
    notes.push_back(
        "the file holds no settings: shapes were taken from its weights; sample rate, attention window, "
        "dilations and padding are upstream's defaults");
  } else {
    if (arguments.contains("rq_rotation_trick")) {
      if (arguments["rq_rotation_trick"].is_boolean() && arguments["rq_rotation_trick"].get<bool>())
        notes.push_back("rq_rotation_trick changes gradients only, and melete does not have it");
      arguments.erase("rq_rotation_trick");
    }
    check_against_weights(arguments, seen, "the file's settings say");
    if (arguments.contains("stft_discriminator") && !arguments["stft_discriminator"].is_null())
      notes.push_back("the file's own kind of STFT discriminator is not known; it is read as the usual one");
  }
  check_against_weights(given, seen, "the given arguments say");
  for (const auto& [name, value] : given.items()) arguments[name] = value;
  SoundStreamGanConfig config = soundstream_config(arguments);
  config.multi_scale = multi_scale_of(state);
  if (!arguments.contains("complex_stft_discr_kwargs") &&
      find_weight(state, "stft_discriminator.init_conv.weight")) {
    config.stft.channels = size_of(state, "stft_discriminator.init_conv.weight", 0);
    config.stft.channel_multiples.clear();
    const int64_t layers = numbered_below(state, "stft_discriminator.layers.");
    require(config.stft.channels > 0 && layers <= static_cast<int64_t>(config.stft.time_strides.size()),
            "[audiolm-pytorch] an STFT discriminator of {} layers; upstream's default has {}", layers,
            config.stft.time_strides.size());
    for (int64_t i = 0; i < layers; ++i)
      config.stft.channel_multiples.push_back(
          size_of(state, fmt::format("stft_discriminator.layers.{}.1.weight", i), 0) / config.stft.channels);
    config.stft.time_strides.resize(static_cast<size_t>(layers));
    config.stft.frequency_strides.resize(static_cast<size_t>(layers));
  }
  check_plain_numbers(config);
  return config;
}

void check_against_weights(const Json& arguments, const Json& seen, const std::string& who_says) {
  for (const auto& [name, value] : seen.items())
    if (arguments.contains(name) && !arguments[name].is_null())
      require(arguments[name] == value || (value.is_array() && Json::array({arguments[name]}) == value),
              "[audiolm-pytorch] {} {} = {}, the weights say {}", who_says, name, arguments[name].dump(),
              value.dump());
}

namespace {

// What SoundStream(...) hands on to its quantizer, as far as it is not as usual.
Json quantizer_arguments(const QuantizerConfig& q) {
  const QuantizerConfig usual;
  Json made = Json::object();
  const auto add = [&made](const char* name, const auto& value, const auto& ordinary) {
    if (value != ordinary) made[name] = value;
  };
  add("codebook_dim", q.codebook_dim, usual.codebook_dim);
  add("shared_codebook", q.shared_codebook, usual.shared_codebook);
  add("use_cosine_sim", q.cosine, usual.cosine);
  add("sample_codebook_temp", q.temperature, usual.temperature);
  add("eps", q.epsilon, usual.epsilon);
  add("commitment_use_cross_entropy_loss", q.cross_entropy_commitment, usual.cross_entropy_commitment);
  add("orthogonal_reg_weight", q.orthogonal_weight, usual.orthogonal_weight);
  add("orthogonal_reg_active_codes_only", q.orthogonal_active_only, usual.orthogonal_active_only);
  add("orthogonal_reg_max_codes", q.orthogonal_max_codes, usual.orthogonal_max_codes);
  add("straight_through", q.differentiable_choice, usual.differentiable_choice);
  add("reinmax", q.reinmax, usual.reinmax);
  add("sync_update_v", q.synchronous_update, usual.synchronous_update);
  if (q.codebook_update != "average") made["ema_update"] = false;
  if (q.codebook_update == "gradient") made["learnable_codebook"] = true;
  return made;
}

}  // namespace

Json soundstream_arguments(const SoundStreamGanConfig& config) {
  const SoundStreamConfig& codec = config.codec;
  const QuantizerConfig& quantizer = codec.quantizer;
  const bool lfq = quantizer.kind == "lfq", fsq = quantizer.kind == "fsq";
  Json strides = Json::array();
  for (size_t i = 0; i < config.stft.time_strides.size(); ++i)
    strides.push_back(tuple({config.stft.frequency_strides[i], config.stft.time_strides[i]}));
  const auto one_or_tuple = [](const std::vector<int64_t>& values) -> Json {
    return values.size() == 1 ? Json(values[0]) : tuple(values);
  };
  Json made = {
      {"channels", codec.channels},
      {"strides", tuple(codec.strides)},
      {"channel_mults", tuple(codec.channel_multiples)},
      {"codebook_dim", codec.dim},
      {"codebook_size", fsq ? Json(nullptr) : Json(quantizer.codebook_size)},
      {"finite_scalar_quantizer_levels", fsq ? Json(quantizer.levels) : Json(nullptr)},
      {"rq_num_quantizers", quantizer.quantizers},
      {"rq_commitment_weight", quantizer.commitment_weight},
      {"rq_ema_decay", quantizer.decay},
      {"rq_quantize_dropout_multiple_of", quantizer.dropout_multiple_of},
      {"rq_groups", quantizer.groups},
      {"rq_stochastic_sample_codes", quantizer.stochastic},
      {"use_lookup_free_quantizer", lfq},
      {"use_finite_scalar_quantizer", fsq},
      {"input_channels", codec.input_channels},
      {"discr_multi_scales", {{"$tuple", config.discriminator_scales}}},
      {"stft_normalized", config.stft.normalized},
      {"enc_cycle_dilations", tuple(codec.encoder_dilations)},
      {"dec_cycle_dilations", tuple(codec.decoder_dilations)},
      {"multi_spectral_window_powers_of_two", tuple(config.loss.mel.window_powers)},
      {"multi_spectral_n_ffts", one_or_tuple(config.loss.mel.n_ffts)},
      {"multi_spectral_n_mels", one_or_tuple(config.loss.mel.mels)},
      {"recon_loss_weight", config.loss.reconstruction_weight},
      {"multi_spectral_recon_loss_weight", config.loss.mel_weight},
      {"adversarial_loss_weight", config.loss.adversarial_weight},
      {"feature_loss_weight", config.loss.feature_weight},
      {"quantize_dropout_cutoff_index", quantizer.dropout_keep},
      {"target_sample_hz", codec.sample_rate_hz},
      {"use_local_attn", codec.attention},
      {"attn_window_size", codec.attention_window},
      {"attn_dim_head", codec.attention_head_dim},
      {"attn_heads", codec.attention_heads},
      {"attn_depth", codec.attention_depth},
      {"attn_xpos_scale_base",
       codec.attention_xpos_scale_base > 0 ? Json(codec.attention_xpos_scale_base) : Json(nullptr)},
      {"attn_dynamic_pos_bias", codec.attention_position_bias},
      {"use_gate_loop_layers", codec.gate_loop},
      {"squeeze_excite", codec.squeeze_excite},
      {"complex_stft_discr_logits_abs", config.stft.magnitude_logits},
      {"pad_mode", codec.pad_mode},
      {"stft_discriminator", nullptr},
      {"complex_stft_discr_kwargs",
       {{"channels", config.stft.channels},
        {"strides", {{"$tuple", strides}}},
        {"chan_mults", tuple(config.stft.channel_multiples)},
        {"n_fft", config.stft.n_fft},
        {"hop_length", config.stft.hop},
        {"win_length", config.stft.window}}},
  };
  if (const Json more = quantizer_arguments(quantizer); !more.empty()) made["rq_kwargs"] = more;
  return made;
}

TensorMap derived_tensors(const SoundStreamGanConfig& config) {
  TensorMap made;
  const MelLossConfig& mel = config.loss.mel;
  const auto own = [](const std::vector<int64_t>& values, size_t i) {
    return values.size() == 1 ? values[0] : values.at(i);
  };
  for (size_t i = 0; i < mel.window_powers.size(); ++i) {
    const int64_t window = int64_t{1} << mel.window_powers[i];
    const int64_t n_fft = std::max(own(mel.n_ffts, i), window);
    const std::string prefix = fmt::format("mel_spec_transforms.{}.", i);
    made[prefix + "spectrogram.window"] = at::hann_window(window, at::kFloat);
    made[prefix + "mel_scale.fb"] = mel_filters(n_fft, own(mel.mels, i), config.codec.sample_rate_hz);
  }
  const SoundStreamConfig& codec = config.codec;
  if (codec.attention && !codec.attention_position_bias) {
    const auto dim = static_cast<double>(codec.attention_head_dim);
    const at::Tensor even = at::arange(0, codec.attention_head_dim, 2, at::kFloat);
    const at::Tensor frequencies = at::pow(10000, even / dim).reciprocal();
    for (const char* side : {"en", "de"})
      for (int64_t i = 0; i < codec.attention_depth; ++i)
        made[fmt::format("{}coder_attn.layers.{}.0.attn_fn.rel_pos.inv_freq", side, i)] = frequencies;
  }
  return made;
}

at::Tensor as_theirs(const std::string& theirs, const at::Tensor& ours) {
  static const std::regex codebook(R"(\._codebook\.(embed|embed_avg|cluster_size)$)");
  return std::regex_search(theirs, codebook) ? ours.unsqueeze(0) : ours;
}

std::vector<std::string> generator_order(const std::vector<std::string>& names) {
  std::vector<std::string> order;
  for (const char* part :
       {"encoder.", "decoder.", "encoder_attn.", "decoder_attn.", "encoder_film.", "decoder_film.", "rq."})
    for (const std::string& name : names)
      if (name.starts_with(part)) order.push_back(name);
  return order;
}

void sort_as_theirs_codec(std::vector<std::string>& names) {
  static const std::vector<std::string> order = {
      "encoder", "encoder_attn", "encoder_film", "rq", "decoder_film", "decoder_attn", "decoder",
      "discriminators", "stft_discriminator", "mel_spec_transforms",
      // attention
      "q_scale", "k_scale", "norm", "to_qkv", "attn_fn", "rel_pos", "inv_freq", "to_v_gate", "to_out",
      // quantizer, discriminators, blocks
      "project_in", "project_out", "rvqs", "init_conv", "conv_layers", "layers", "pos_bias", "mlp",
      "final_conv", "fn", "net", "conv", "to_qkva", "to_cond", "gamma", "weight", "bias", "b",
      // codebooks, spectrograms
      "_codebook", "initted", "cluster_size", "embed_avg", "embed", "spectrogram", "window", "mel_scale",
      "fb"};
  sort_as_registered(names, order);
}

bool belongs_to_discriminators(const std::string& theirs) {
  return theirs.starts_with("discriminators.") || theirs.starts_with("stft_discriminator.");
}

}  // namespace melete::audiolm_pytorch

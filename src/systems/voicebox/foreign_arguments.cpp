// Constructor arguments of voicebox-pytorch into our settings and back.
#include "io/foreign_arguments.h"
#include "core/base/error.h"
#include "io/foreign_weights.h"
#include "systems/voicebox/foreign_names.h"

namespace melete::voicebox_pytorch {

namespace {

constexpr const char* kSystem = "voicebox-pytorch";

void ignore(const Json&) {}

// Arguments that VoiceBox, DurationPredictor and Transformer share.
ArgumentSetters transformer_setters(voicebox::TransformerConfig& c) {
  return {{"dim", argument_to(c.dim)},
          {"depth", argument_to(c.depth)},
          {"dim_head", argument_to(c.head_dim)},
          {"heads", argument_to(c.heads)},
          {"ff_mult", argument_to(c.feed_forward_multiplier)},
          {"ff_dropout", argument_to(c.feed_forward_dropout)},
          {"attn_dropout", argument_to(c.attention_dropout)},
          {"attn_flash", ignore},  // the same numbers
          {"attn_qk_norm", argument_to(c.query_key_norm)},
          {"use_gateloop_layers", argument_to(c.gate_loops)},
          {"gateloop_use_jax", ignore}};
}

void add_position_setters(ArgumentSetters& setters, voicebox::PositionConfig& c) {
  setters["conv_pos_embed_kernel_size"] = argument_to(c.kernel);
  setters["conv_pos_embed_groups"] = argument_to(c.groups);
}

void check_depth(const voicebox::TransformerConfig& config) {
  require(config.depth % 2 == 0, "[voicebox-pytorch] expected an even depth, got {}", config.depth);
}

// Which multiplier gives that inner width: a whole number where one does.
double multiplier_of(int64_t dim, int64_t inner) {
  for (int64_t whole = 1; whole <= 16; ++whole)
    if (dim * whole * 2 / 3 == inner) return static_cast<double>(whole);
  return (static_cast<double>(inner) + 0.5) * 3 / 2 / static_cast<double>(dim);
}

}  // namespace

voicebox::TransformerConfig transformer_config(const Json& arguments) {
  voicebox::TransformerConfig config;
  config.heads = 8;
  config.register_tokens = 0;
  config.query_key_norm = false;
  config.skip_connections = false;
  bool steered = false;
  int64_t condition_dim = 0;
  ArgumentSetters setters = transformer_setters(config);
  setters["num_register_tokens"] = [&](const Json& count) {
    config.register_tokens = static_cast<int64_t>(count.get<double>());
  };
  setters["adaptive_rmsnorm"] = argument_to(steered);
  setters["adaptive_rmsnorm_cond_dim_in"] = argument_to(condition_dim);
  setters["use_unet_skip_connection"] = argument_to(config.skip_connections);
  setters["skip_connect_scale"] = argument_to(config.skip_scale);
  apply_arguments(arguments, setters, kSystem, "Transformer");
  if (steered) config.condition_dim = condition_dim > 0 ? condition_dim : config.dim;
  check_depth(config);
  return config;
}

voicebox::VoiceboxConfig voicebox_config(const Json& arguments, int64_t latent_dim) {
  voicebox::VoiceboxConfig config;
  config.tokens = 0;
  config.token_dim = 1024;
  config.transformer.skip_connections = false;  // it never turns them on
  int64_t input_dim = 0;
  bool told = true;
  ArgumentSetters setters = transformer_setters(config.transformer);
  add_position_setters(setters, config.positions);
  setters["num_cond_tokens"] = argument_to(config.tokens);
  setters["audio_enc_dec"] = ignore;  // what matters of it is latent_dim
  setters["dim_in"] = argument_to(input_dim);
  setters["dim_cond_emb"] = argument_to(config.token_dim);
  setters["time_hidden_dim"] = argument_to(config.time_dim);
  setters["num_register_tokens"] = argument_to(config.transformer.register_tokens);
  setters["condition_on_text"] = argument_to(told);
  setters["p_drop_prob"] = ignore;        // never read there
  setters["frac_lengths_mask"] = ignore;  // of the loss: flow_matching_config
  apply_arguments(arguments, setters, kSystem, "VoiceBox");
  check_depth(config.transformer);
  const int64_t dim = config.transformer.dim;
  if (input_dim == 0) input_dim = dim;
  config.frame_dim = latent_dim > 0 ? latent_dim : input_dim;
  config.project_frames = latent_dim > 0 && latent_dim != dim;
  require(config.input_dim() == input_dim, "[voicebox-pytorch] dim_in {} does not fit frames of {} values",
          input_dim, config.frame_dim);
  require(!told || config.tokens > 0, "[voicebox-pytorch] VoiceBox needs num_cond_tokens");
  if (!told) config.tokens = 0;
  return config;
}

voicebox::DurationConfig duration_config(const Json& arguments, int64_t latent_dim) {
  voicebox::DurationConfig config;
  ArgumentSetters setters = transformer_setters(config.transformer);
  add_position_setters(setters, config.positions);
  setters["num_phoneme_tokens"] = argument_to(config.phonemes);
  setters["dim_phoneme_emb"] = argument_to(config.phoneme_dim);
  for (const char* other :
       {"audio_enc_dec", "tokenizer", "p_drop_prob", "frac_lengths_mask", "aligner_kwargs"})
    setters[other] = ignore;
  apply_arguments(arguments, setters, kSystem, "DurationPredictor");
  check_depth(config.transformer);
  config.condition_dim = latent_dim > 0 ? latent_dim : config.transformer.dim;
  config.project_condition = config.condition_dim != config.transformer.dim;
  return config;
}

voicebox::AlignerConfig aligner_config(const Json& arguments) {
  voicebox::AlignerConfig config;
  config.phonemes = 0;
  config.as_upstream = true;
  apply_arguments(arguments,
                  {{"dim_in", argument_to(config.frame_dim)},
                   {"dim_hidden", argument_to(config.phoneme_dim)},
                   {"attn_channels", argument_to(config.attention_dim)},
                   {"temperature", argument_to(config.temperature)}},
                  kSystem, "Aligner");
  return config;
}

voicebox::AlignerConfig duration_aligner_config(const Json& arguments) {
  Json own = arguments.value("aligner_kwargs", Json::object());
  if (own.is_null()) own = Json::object();
  own["dim_hidden"] = duration_config(arguments).phoneme_dim;
  return aligner_config(own);
}

voicebox::FlowMatchingConfig flow_matching_config(const Json& wrapper, const Json& network) {
  voicebox::FlowMatchingConfig config;
  config.as_upstream = true;
  config.sigma = 0;
  config.condition_drop = 0;
  config.hide_all = 0;
  ArgumentSetters setters = {{"sigma", argument_to(config.sigma)},
                             {"cond_drop_prob", argument_to(config.condition_drop)}};
  for (const char* other : {"voicebox", "text_to_semantic", "duration_predictor", "ode_atol", "ode_rtol",
                            "use_torchode", "torchdiffeq_ode_method", "torchode_method_klass"})
    setters[other] = ignore;
  apply_arguments(wrapper, setters, kSystem, "ConditionalFlowMatcherWrapper");
  if (const auto share = network.find("frac_lengths_mask"); share != network.end() && !share->is_null()) {
    config.hidden_share_low = share->at(0).get<double>();
    config.hidden_share_high = share->at(1).get<double>();
  }
  return config;
}

voicebox::FlowSampling sampling_config(const Json& wrapper, int64_t points, double guidance) {
  voicebox::FlowSampling how;
  how.guidance = guidance;
  how.solver.steps = points - 1;
  bool rows_apart = false;  // torchode; else torchdiffeq
  std::string tensor_method = "midpoint", row_method = "tsit5";
  const auto row_setter = [&](const Json& name) {
    // "Tsit5", or as Python prints the class: "<class 'torchode.single_step_methods.tsit5.Tsit5'>"
    std::string text = name.get<std::string>();
    text.erase(text.find_last_not_of("'>") + 1);
    row_method = text.substr(text.rfind('.') + 1);
    for (char& c : row_method) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    if (row_method == "heun") row_method = "adaptive_heun";
  };
  ArgumentSetters setters = {{"ode_atol", argument_to(how.solver.absolute_tolerance)},
                             {"ode_rtol", argument_to(how.solver.relative_tolerance)},
                             {"use_torchode", argument_to(rows_apart)},
                             {"torchdiffeq_ode_method", argument_to(tensor_method)},
                             {"torchode_method_klass", row_setter}};
  for (const char* other : {"voicebox", "text_to_semantic", "duration_predictor", "sigma", "cond_drop_prob"})
    setters[other] = ignore;
  apply_arguments(wrapper, setters, kSystem, "ConditionalFlowMatcherWrapper");
  how.solver.method = rows_apart ? row_method : tensor_method;
  how.solver.as_torchdiffeq = !rows_apart;
  schema_of(how).check();
  return how;
}

Json voicebox_arguments(const voicebox::VoiceboxConfig& config) {
  const voicebox::TransformerConfig& t = config.transformer;
  require(
      !t.skip_connections && t.depth % 2 == 0,
      "[voicebox-pytorch] its VoiceBox has no skip connections and an even depth; this model has {} layers{}",
      t.depth, t.skip_connections ? " with skips" : "");
  Json made = {{"dim_in", config.input_dim()},
               {"dim_cond_emb", config.token_dim},
               {"dim", t.dim},
               {"depth", t.depth},
               {"dim_head", t.head_dim},
               {"heads", t.heads},
               {"ff_mult", t.feed_forward_multiplier},
               {"ff_dropout", t.feed_forward_dropout},
               {"time_hidden_dim", config.time_dim > 0 ? config.time_dim : 4 * t.dim},
               {"conv_pos_embed_kernel_size", config.positions.kernel},
               {"attn_dropout", t.attention_dropout},
               {"attn_qk_norm", t.query_key_norm},
               {"use_gateloop_layers", t.gate_loops},
               {"num_register_tokens", t.register_tokens},
               {"condition_on_text", config.tokens > 0}};
  if (config.tokens > 0) made["num_cond_tokens"] = config.tokens;
  if (config.positions.groups > 0) made["conv_pos_embed_groups"] = config.positions.groups;
  return made;
}

int64_t latent_dim_of_file(const TensorMap& weights) {
  const at::Tensor* projection = find_weight(weights, "proj_in.weight");
  return projection == nullptr ? 0 : projection->size(1);
}

Json voicebox_arguments_of_file(const TensorMap& weights, const std::string& where) {
  const auto size = [&](const char* name, int64_t dimension) {
    return weight_size(weights, name, dimension, where);
  };
  const auto has = [&](const char* name) { return find_weight(weights, name) != nullptr; };
  const int64_t dim = size("to_embed.weight", 0), head_dim = 2 * size("transformer.rotary_emb.inv_freq", 0);
  const bool told = has("to_cond_emb.weight");
  Json made = {{"dim", dim},
               {"dim_in", size("null_cond", 0)},
               {"depth", numbered_below(weights, "transformer.layers.")},
               {"dim_head", head_dim},
               {"heads", size("transformer.layers.0.3.to_out.weight", 1) / head_dim},
               {"ff_mult", multiplier_of(dim, size("transformer.layers.0.5.3.weight", 1))},
               {"time_hidden_dim", size("sinu_pos_emb.1.weight", 0)},
               {"conv_pos_embed_kernel_size", size("conv_embed.dw_conv1d.0.weight", 2)},
               {"conv_pos_embed_groups", dim / size("conv_embed.dw_conv1d.0.weight", 1)},
               {"attn_qk_norm", has("transformer.layers.0.3.q_norm.gamma")},
               {"use_gateloop_layers", has("transformer.layers.0.1.norm.gamma")},
               {"num_register_tokens",
                has("transformer.register_tokens") ? size("transformer.register_tokens", 0) : 0},
               {"condition_on_text", told}};
  if (told) {
    made["num_cond_tokens"] = size("to_cond_emb.weight", 0) - 1;
    made["dim_cond_emb"] = size("to_cond_emb.weight", 1);
  }
  return made;
}

}  // namespace melete::voicebox_pytorch

#include <regex>

#include "core/base/error.h"
#include "io/foreign_arguments.h"
#include "systems/muse/foreign_names.h"

namespace melete::muse_maskgit_pytorch {

namespace {

using Json = nlohmann::ordered_json;
constexpr const char* kSystem = "muse-maskgit-pytorch";

// Arguments that mean nothing here, or nothing upstream.
void ignored(const Json&) {}

std::function<void(const Json&)> to_list(std::vector<int64_t>& target) {
  return [&target](const Json& value) {
    target = value.is_array() ? value.get<std::vector<int64_t>>() : std::vector{value.get<int64_t>()};
  };
}

// vector-quantize-pytorch's VectorQuantize(...), with `prefix` before every name.
ArgumentSetters vector_quantize_setters(QuantizerConfig& q, const std::string& prefix) {
  q.kind = "vq";
  q.decay = 0.8;
  q.kmeans_init = q.cosine = false;
  q.dead_code_threshold = 0;
  const ArgumentSetters setters = {
      {"codebook_dim", argument_to(q.codebook_dim)},
      {"heads", argument_to(q.codebooks)},
      {"separate_codebook_per_head", argument_to(q.separate_codebooks)},
      {"decay", argument_to(q.decay)},
      {"eps", argument_to(q.epsilon)},
      {"kmeans_init", argument_to(q.kmeans_init)},
      {"kmeans_iters", argument_to(q.kmeans_iterations)},
      {"use_cosine_sim", argument_to(q.cosine)},
      {"threshold_ema_dead_code", argument_to(q.dead_code_threshold)},
      {"commitment_weight", argument_to(q.commitment_weight)},
      {"commitment_use_cross_entropy_loss",
       [&q](const Json& on) {
         q.cross_entropy_commitment = q.commitment_gradient_of_moved = on.get<bool>();
       }},
      {"orthogonal_reg_weight", argument_to(q.orthogonal_weight)},
      {"orthogonal_reg_active_codes_only", argument_to(q.orthogonal_active_only)},
      {"orthogonal_reg_max_codes", argument_to(q.orthogonal_max_codes)},
      {"stochastic_sample_codes", argument_to(q.stochastic)},
      {"sample_codebook_temp", argument_to(q.temperature)},
      {"straight_through", argument_to(q.differentiable_choice)},
      {"reinmax", argument_to(q.reinmax)},
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
      {"sync_update_v", argument_to(q.synchronous_update)},
      {"freeze_codebook", ignored},  // never looked at
      {"sync_kmeans", ignored},
      {"sync_codebook", ignored},
      {"sync_affine_param", ignored},
      {"channel_last", ignored},
      {"accept_image_fmap", ignored},
  };
  ArgumentSetters prefixed;
  for (const auto& [name, setter] : setters) prefixed[prefix + name] = setter;
  return prefixed;
}

// Its modules by their class: "Tanh()", "torch.nn.Tanh", "tanh".
std::string activation_of(const Json& value) {
  const std::string text = value.get<std::string>();
  std::smatch match;
  require(std::regex_search(text, match, std::regex(R"((\w+)(\(.*\))?$)")),
          "[{}] no activation is called `{}`", kSystem, text);
  std::string name = match.str(1);
  for (char& letter : name) letter = static_cast<char>(std::tolower(letter));
  return name == "identity" ? "none" : name;
}

ArgumentSetters lfq_setters(QuantizerConfig& q) {
  return {
      {"entropy_loss_weight", argument_to(q.entropy_weight)},
      {"commitment_loss_weight", argument_to(q.lfq_commitment_weight)},
      {"diversity_gamma", argument_to(q.diversity)},
      {"num_codebooks", argument_to(q.codebooks)},
      {"codebook_scale", argument_to(q.scale)},
      {"frac_per_sample_entropy", argument_to(q.entropy_fraction)},
      {"straight_through_activation", [&q](const Json& value) { q.lfq_activation = activation_of(value); }},
      {"keep_num_codebooks_dim", ignored},
      {"dim", ignored},
      {"codebook_size", argument_to(q.codebook_size)}};
}

QuantizerConfig plain_quantizer() {
  QuantizerConfig q = muse::VqganVaeConfig().quantizer;
  q.factorised_entropy = false;
  q.kmeans_in_eval = true;
  q.diversity = 1;
  return q;
}

void set_transformer(muse::MaskGitTransformerConfig& c, const Json& arguments, int64_t text_dim,
                     const char* what) {
  c.text_dim = text_dim;
  apply_arguments(arguments,
                  {{"num_tokens", argument_to(c.tokens)},
                   {"dim", argument_to(c.dim)},
                   {"seq_len", argument_to(c.positions)},
                   {"depth", argument_to(c.depth)},
                   {"dim_head", argument_to(c.head_dim)},
                   {"heads", argument_to(c.heads)},
                   {"ff_mult", argument_to(c.feed_forward_multiplier)},
                   {"dim_out", argument_to(c.outputs)},
                   {"add_mask_id", argument_to(c.mask_token)},
                   {"self_cond", argument_to(c.self_condition)},
                   {"flash", ignored},
                   {"t5_name", ignored}},
                  kSystem, what);
}

}  // namespace

QuantizerConfig lfq_config(const Json& arguments) {
  QuantizerConfig q = plain_quantizer();
  // Without a codebook's size, every channel is a bit of its own.
  if (!arguments.contains("codebook_size") || arguments["codebook_size"].is_null())
    q.codebook_size = int64_t{1} << arguments.at("dim").get<int64_t>();
  apply_arguments(arguments, lfq_setters(q), kSystem, "LFQ");
  return q;
}

muse::VqganConfig vqgan_config(const Json& arguments) {
  muse::VqganConfig config;
  config.as_upstream = true;
  QuantizerConfig& q = config.vae.quantizer;
  q = plain_quantizer();
  q.diversity = 4;
  ArgumentSetters setters;
  if (!arguments.value("lookup_free_quantization", true)) setters = vector_quantize_setters(q, "vq_");
  // With the other quantizer its arguments are accepted and left alone.
  for (const auto& item : arguments.items())
    if (item.key().starts_with("vq_") && setters.count(item.key()) == 0 && q.kind == "lfq")
      setters[item.key()] = ignored;
  setters["dim"] = argument_to(config.vae.dim);
  setters["channels"] = argument_to(config.vae.channels);
  setters["layers"] = argument_to(config.vae.layers);
  setters["codebook_size"] = argument_to(q.codebook_size);
  setters["l2_recon_loss"] = [&](const Json& on) {
    config.loss.reconstruction = on.get<bool>() ? "l2" : "l1";
  };
  setters["use_hinge_loss"] = [&](const Json& on) {
    if (config.loss.adversarial != "none") config.loss.adversarial = on.get<bool>() ? "hinge" : "bce";
  };
  setters["use_vgg_and_gan"] = [&](const Json& on) {
    if (!on.get<bool>()) config.loss.adversarial = "none";
  };
  setters["discr_layers"] = argument_to(config.discriminator.layers);
  setters["encdec_layer_mults"] = to_list(config.vae.multiples);
  setters["encdec_num_resnet_blocks"] = to_list(config.vae.residual_blocks);
  setters["encdec_resnet_groups"] = argument_to(config.vae.groups);
  setters["encdec_first_conv_kernel_size"] = argument_to(config.vae.first_kernel);
  setters["lfq_kwargs"] = [&](const Json& more) {
    q.diversity = 1;  // the default of 4 stands in the argument that this one replaces
    apply_arguments(more, lfq_setters(q), kSystem, "lfq_kwargs");
  };
  for (const char* name : {"vq_kwargs", "vgg", "lookup_free_quantization"}) setters[name] = ignored;
  apply_arguments(arguments, setters, kSystem, "VQGanVAE");
  return config;
}

muse::PictureDiscriminatorConfig discriminator_config(const Json& arguments) {
  muse::PictureDiscriminatorConfig config;
  apply_arguments(arguments,
                  {{"dims", to_list(config.dims)},
                   {"channels", ignored},
                   {"groups", argument_to(config.groups)},
                   {"init_kernel_size", argument_to(config.first_kernel)}},
                  kSystem, "Discriminator");
  return config;
}

muse::MaskGitTransformerConfig transformer_config(const Json& arguments, int64_t text_dim) {
  muse::MaskGitTransformerConfig config;
  set_transformer(config, arguments, text_dim, "MaskGitTransformer");
  return config;
}

muse::MaskGitTransformerConfig critic_config(const Json& arguments, int64_t text_dim) {
  muse::MaskGitTransformerConfig config = muse::MaskGitConfig().critic_transformer;
  set_transformer(config, arguments, text_dim, "TokenCritic");
  return config;
}

muse::MaskGitConfig maskgit_config(const Json& arguments, const Json& transformer, const Json& critic,
                                   int64_t text_dim) {
  muse::MaskGitConfig config;
  config.transformer = transformer_config(transformer, text_dim);
  if (!critic.is_null()) {
    config.critic = "separate";
    config.critic_transformer = critic_config(critic, text_dim);
  }
  apply_arguments(arguments,
                  {{"cond_drop_prob", argument_to(config.text_drop)},
                   {"self_cond_prob", argument_to(config.self_condition_share)},
                   {"no_mask_token_prob", argument_to(config.unmasked_share)},
                   {"critic_loss_weight", argument_to(config.critic_weight)},
                   {"self_token_critic",
                    [&](const Json& on) {
                      if (on.get<bool>()) config.critic = "self";
                    }},
                   {"noise_schedule",
                    [&](const Json& name) {
                      const std::string given = name.get<std::string>();
                      config.schedule = given.substr(0, given.find("_schedule"));
                    }},
                   {"image_size", ignored},
                   {"cond_image_size", ignored}},
                  kSystem, "MaskGit");
  return config;
}

}  // namespace melete::muse_maskgit_pytorch

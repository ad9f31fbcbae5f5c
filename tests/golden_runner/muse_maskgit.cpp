// MaskGit: transformer and critic alone, training losses, generation in one stage and in two.
#include "core/base/error.h"
#include "data/pictures.h"
#include "muse.h"
#include "systems/muse/muse.h"

namespace melete::golden::muse_maskgit_cases {

namespace {

namespace foreign = muse_maskgit_pytorch;
using muse::MaskGit;
using muse::MaskGitContext;
using muse::MaskGitTransformer;
using muse::VqganVae;

// null where a configuration has no such part
nlohmann::ordered_json part(const nlohmann::ordered_json& config, const char* name) {
  return config.value(name, nlohmann::ordered_json());
}

at::Tensor optional_input(const Case& c, const std::string& name) {
  return c.has("in." + name) ? c.in(name) : at::Tensor();
}

// bool [batch]: whose text is kept by these draws
at::Tensor kept_by(const at::Tensor& draws, double drop) {
  return (draws < 1 - drop).flatten();
}

// Who keeps the text is drawn only where a share of it is dropped, neither none nor all.
MaskGitContext with_text_dropped(const Case& c, const MaskGitContext& context, double otherwise) {
  const double drop = argument(c, "cond_drop_prob", otherwise);
  if (c.has("rand.text_keep_uniform"))
    return context.with_text_of(kept_by(c.rand("text_keep_uniform"), drop));
  return drop == 1 ? context.without_text() : context;
}

void check_transformer(const Case& c, Checker& check, bool critic) {
  const int64_t width = foreign::text_dim(c.weights, "");
  nlohmann::ordered_json arguments = c.config;
  for (const char* of_a_call : {"forward", "cond_scale", "cond_drop_prob", "ignore_index"})
    arguments.erase(of_a_call);
  MaskGitTransformer model(critic ? foreign::critic_config(arguments, width)
                                  : foreign::transformer_config(arguments, width));
  const auto pairs = foreign::transformer_pairs(*model);
  foreign::load(pairs, c.weights);
  const at::Tensor ids = c.in("ids"), before = optional_input(c, "self_cond_embed");
  at::Tensor condition = optional_input(c, "cond_ids");
  if (condition.defined()) condition = condition.flatten(1);
  const MaskGitContext context = model->context(c.in("text_embeds"), condition);

  const at::Tensor embedded = model->embed(ids, context, before);
  const at::Tensor logits = model->predict(embedded);
  const at::Tensor null = model->predict(model->embed(ids, context.without_text(), before));
  if (c.has("out.embed")) check.close("embed", embedded, c.out("embed"));
  if (c.has("out.logits")) check.close("logits", logits, c.out("logits"));
  if (c.has("out.null_logits")) check.close("null_logits", null, c.out("null_logits"));
  if (c.has("out.guided"))
    check.close("guided", null + (logits - null) * argument(c, "cond_scale", 3), c.out("guided"));
  if (!c.has("out.loss")) return;

  const at::Tensor answered = model->predict(model->embed(ids, with_text_dropped(c, context, 0.5), before));
  const at::Tensor labels = c.in("labels");
  const auto ignored = static_cast<int64_t>(argument(c, "ignore_index", -1));
  const at::Tensor loss = answered.size(-1) == 1
                              ? at::binary_cross_entropy_with_logits(answered.squeeze(-1), labels)
                              : at::cross_entropy_loss(answered.flatten(0, 1), labels.flatten(), {},
                                                       at::Reduction::Mean, ignored);
  loss.backward();
  check.close("loss", loss, c.out("loss"));
  check_gradients(c, check, pairs);
}

void check_predictor(const Case& c, Checker& check) {
  check_transformer(c, check, false);
}

void check_critic(const Case& c, Checker& check) {
  check_transformer(c, check, true);
}

struct Models {
  MaskGit maskgit{nullptr};
  VqganVae vae{nullptr}, condition_vae{nullptr};
};

VqganVae load_vae(const nlohmann::ordered_json& arguments, const TensorMap& state) {
  VqganVae vae(foreign::vqgan_config(arguments).vae);
  foreign::load_vae(*vae, state);
  return vae;
}

// config: with vae, transformer, maskgit and what else there is. The second autoencoder is there where the
// model reads smaller pictures.
Models load_models(const nlohmann::ordered_json& config, const TensorMap& weights) {
  expect_only(config, {"vae", "cond_vae", "transformer", "maskgit", "token_critic", "no_cond_images",
                       "forward", "generate"});
  Models models;
  const auto& arguments = config.at("maskgit");
  models.maskgit =
      MaskGit(foreign::maskgit_config(arguments, config.at("transformer"), part(config, "token_critic"),
                                      foreign::text_dim(weights, "transformer.")));
  foreign::load_maskgit(*models.maskgit, weights);
  models.vae = load_vae(config.at("vae"), foreign::part_of(weights, "vae."));
  const auto size = part(arguments, "cond_image_size");
  if (!size.is_null()) {
    const auto second = part(config, "cond_vae");
    models.condition_vae =
        load_vae(second.is_null() ? config.at("vae") : second, foreign::part_of(weights, "cond_vae."));
  }
  return models;
}

MuseDraws training_draws(const Case& c, const MaskGit& model, const at::Tensor& ids) {
  MuseDraws draws;
  draws.add("mask_time", c.rand("time_uniform"));
  draws.add("mask_order", c.rand("mask_rand"));
  if (c.has("rand.no_mask_rand")) draws.add("unmask_order", c.rand("no_mask_rand"));
  for (const char* name : {"text_keep_uniform", "text_keep_uniform2"})
    if (c.has(std::string("rand.") + name)) draws.add("keep_text", c.rand(name));
  // Only what was masked is sampled here.
  if (c.has("rand.critic_gumbel_uniform")) {
    MuseDraws of_masks = draws;
    const at::Tensor places = model->mask(ids, of_masks).places;
    draws.add("critic_tokens", c.rand("critic_gumbel_uniform").flatten(0, 1).index_select(0, places));
  }
  const auto inputs = part(c.json, "inputs");
  if (inputs.contains("python_random")) {
    std::vector<double> values = inputs["python_random"].at("value");
    size_t next = 0;
    if (model->config().transformer.self_condition)
      draws.add("self_condition", at::scalar_tensor(values.at(next++), at::kDouble));
    if (next < values.size()) draws.add("critic_temperature", at::scalar_tensor(values[next], at::kDouble));
  }
  return draws;
}

void check_training(const Case& c, Checker& check) {
  Models models = load_models(c.config, c.weights);
  MaskGit& model = models.maskgit;
  model->train();
  const at::Tensor given = c.in("images_or_ids");
  at::Tensor ids = given;
  if (given.is_floating_point()) {
    ids = models.vae->tokenize(given);
    if (c.has("out.ids")) check.close("ids", ids, c.out("ids"));
  }
  muse::MaskGitImpl::Batch batch{ids.flatten(1), c.in("text_embeds"), {}};
  // Upstream conditions on a smaller picture only where it is given one.
  if (c.has("in.cond_images")) {
    const at::Tensor smaller = models.condition_vae->tokenize(c.in("cond_images"));
    if (c.has("out.cond_ids")) check.close("cond_ids", smaller, c.out("cond_ids"));
    batch.condition = smaller.flatten(1);
  } else if (c.has("in.cond_token_ids")) {
    batch.condition = c.in("cond_token_ids").flatten(1);
  }
  MuseDraws draws = training_draws(c, model, batch.tokens);
  muse::MaskGitImpl::LossOptions how;
  how.only_prediction = argument(c, "train_only_generator", 0) != 0;
  how.temperature = argument(c, "sample_temperature", -1);
  how.text_drop = argument(c, "cond_drop_prob", model->config().text_drop);
  how.ignored_token = static_cast<int64_t>(argument(c, "ignore_index", -1));
  const auto result = model->losses(batch, draws, how);
  result.total.backward();
  check.close("x", result.masked.input, c.out("x"));
  const at::Tensor& labels = result.masked.labels;
  check.close("labels", labels.masked_fill(labels < 0, how.ignored_token), c.out("labels"));
  if (c.has("out.self_cond_embed"))
    check.close("self_cond_embed", result.self_conditioned, c.out("self_cond_embed"));
  if (c.has("out.critic_input")) check.close("critic_input", result.critic_input, c.out("critic_input"));
  for (const auto& [name, value] : result.named) {
    if (name == "prediction") check.close("ce_loss", value, c.out("ce_loss"));
    if (name == "critic" && c.has("out.critic_loss")) check.close("critic_loss", value, c.out("critic_loss"));
  }
  check.close("loss", result.total, c.out("loss"));
  check_gradients(c, check, foreign::maskgit_pairs(*model));

  if (!c.has("out.logits")) return;
  const at::NoGradGuard no_grad;
  const MaskGitContext context = model->transformer->context(batch.text, batch.condition);
  const MaskGitContext seen = with_text_dropped(c, context, model->config().text_drop);
  check.close("logits",
              model->transformer->predict(
                  model->transformer->embed(result.masked.input, seen, result.self_conditioned)),
              c.out("logits"));
}

muse::PictureRequest request_of(const Case& c) {
  muse::PictureRequest request;
  request.text = c.in("text_embeds");
  if (c.has("in.neg_text_embeds")) request.negative = c.in("neg_text_embeds");
  if (c.has("in.cond_images")) request.smaller = c.in("cond_images");
  request.guidance.scale = argument(c, "cond_scale", 3);
  request.guidance.plain_self_critic = true;
  auto& how = request.decoding;
  how.doubt_predictions = true;
  how.steps = static_cast<int64_t>(argument(c, "timesteps", 18));
  how.temperature = argument(c, "temperature", 1);
  how.filter_threshold = argument(c, "topk_filter_thres", 0.9);
  how.remask = argument(c, "can_remask_prev_masked", 0) != 0;
  how.use_critic = argument(c, "force_not_use_token_critic", 0) == 0;
  how.critic_noise = argument(c, "critic_noise_scale", 1);
  if (const double side = argument(c, "fmap_size", 0); side > 0)
    request.rows = request.columns = static_cast<int64_t>(side);
  return request;
}

// The grid that upstream makes: image_size pixels by what a token covers.
void set_grid(muse::PictureRequest& request, const nlohmann::ordered_json& config, const VqganVae& vae) {
  if (request.rows == 0)
    request.rows = request.columns =
        config.at("maskgit").at("image_size").get<int64_t>() / vae->pixels_per_token();
}

void add_steps(MuseDraws& draws, const std::string& what, const at::Tensor& steps) {
  for (int64_t i = 0; i < steps.size(0); ++i) draws.add(what, steps[i]);
}

void check_generation(const Case& c, Checker& check) {
  Models models = load_models(c.config, c.weights);
  models.maskgit->eval();
  muse::PictureStage stage{models.maskgit, models.vae, models.condition_vae};
  muse::PictureRequest request = request_of(c);
  request.decoding.schedule = models.maskgit->config().schedule;
  set_grid(request, c.config, models.vae);
  MuseDraws draws;
  add_steps(draws, "gumbel", c.rand("gumbel_uniform"));
  if (c.has("rand.critic_uniform")) add_steps(draws, "critic_noise", c.rand("critic_uniform"));
  std::vector<at::Tensor> inputs, predictions;
  at::Tensor first, last;
  const auto result = make_pictures(stage, request, draws, [&](const MaskingStep& step) {
    inputs.push_back(step.input);
    predictions.push_back(step.predicted);
    if (!first.defined()) first = step.logits;
    last = step.logits;
  });
  if (c.has("out.cond_ids")) check.close("cond_ids", result.condition, c.out("cond_ids"));
  check.close("step_ids", at::stack(inputs), c.out("step_ids"));
  check.close("step_pred", at::stack(predictions), c.out("step_pred"));
  check.close("first_logits", first, c.out("first_logits"));
  check.close("last_logits", last, c.out("last_logits"));
  check.close("ids", result.ids, c.out("ids"));
  check.close("images", result.pictures, c.out("images"));
}

void check_muse(const Case& c, Checker& check) {
  expect_only(c.config, {"base", "superres"});
  const auto& base_config = c.config.at("base");
  const auto& super_config = c.config.at("superres");
  Models base = load_models(base_config, foreign::part_of(c.weights, "base_maskgit."));
  Models super = load_models(super_config, foreign::part_of(c.weights, "superres_maskgit."));
  base.maskgit->eval();
  super.maskgit->eval();
  muse::PictureStage first{base.maskgit, base.vae, base.condition_vae};
  muse::PictureStage second{super.maskgit, super.vae, super.condition_vae};
  MuseDraws first_draws, second_draws;
  add_steps(first_draws, "gumbel", c.rand("base_gumbel_uniform"));
  add_steps(second_draws, "gumbel", c.rand("superres_gumbel_uniform"));
  if (c.has("rand.base_critic_uniform"))
    add_steps(first_draws, "critic_noise", c.rand("base_critic_uniform"));
  if (c.has("rand.superres_critic_uniform"))
    add_steps(second_draws, "critic_noise", c.rand("superres_critic_uniform"));

  muse::PictureRequest request = request_of(c);
  request.decoding.schedule = base.maskgit->config().schedule;
  set_grid(request, base_config, base.vae);
  const auto small = make_pictures(first, request, first_draws);
  check.close("base_ids", small.ids, c.out("base_ids"));
  check.close("lowres_image", small.pictures, c.out("lowres_image"));

  request = request_of(c);
  request.decoding.schedule = super.maskgit->config().schedule;
  request.smaller = small.pictures;
  request.decoding.steps =
      static_cast<int64_t>(argument(c, "superres_timesteps", static_cast<double>(request.decoding.steps)));
  set_grid(request, super_config, super.vae);
  const auto large = make_pictures(second, request, second_draws);
  check.close("cond_ids", large.condition, c.out("cond_ids"));
  check.close("superres_ids", large.ids, c.out("superres_ids"));
  check.close("superres_image", large.pictures, c.out("superres_image"));
  if (c.has("out.superres_pil"))
    check.close("superres_pil", picture_bytes(large.pictures, OutOfRange::wrap), c.out("superres_pil"));
}

const bool registered =
    register_case("muse", "MaskGitTransformer", check_predictor) &&
    register_case("muse", "TokenCritic", check_critic) && register_case("muse", "MaskGit", check_training) &&
    register_case("muse", "MaskGit.generate", check_generation) && register_case("muse", "Muse", check_muse);

}  // namespace

}  // namespace melete::golden::muse_maskgit_cases

// The autoencoder of Muse: quantizer and discriminator alone, reconstructions, losses of both sides.
#include <torch/autograd.h>

#include "core/base/error.h"
#include "muse.h"

namespace melete::golden::muse_vqgan_cases {

namespace {

namespace foreign = muse_maskgit_pytorch;
using muse::Vqgan;

void check_discriminator(const Case& c, Checker& check) {
  muse::VqganConfig config;
  config.discriminator = foreign::discriminator_config(c.config);
  muse::PictureDiscriminator network(config.discriminator, c.config.value("channels", 3), 0);
  const auto pairs = foreign::discriminator_pairs(*network);
  foreign::load(pairs, c.weights);
  const at::Tensor x = c.in("x").clone().set_requires_grad(true);
  const at::Tensor logits = network->forward(x);
  const at::Tensor loss = (logits * c.in("loss_weight")).sum();
  loss.backward();
  check.close("logits", logits, c.out("logits"));
  check.close("loss", loss, c.out("loss"));
  if (c.has("out.d_x")) check.gradient("d_x", x.grad(), c.out("d_x"));
  check_gradients(c, check, pairs, config);
}

// [batch, dim, rows, columns] or [batch, frames, dim]
at::Tensor to_frames(const at::Tensor& x) {
  return x.dim() == 4 ? x.permute({0, 2, 3, 1}).flatten(1, 2) : x;
}

std::string quantizer_name(const std::string& ours) {
  const std::string prefix = "groups.0.";
  return ours.starts_with(prefix) ? ours.substr(prefix.size()) : ours;
}

Quantizer lfq_of(const Case& c, const QuantizerConfig& config) {
  const at::NoGradGuard no_grad;
  Quantizer quantizer(config, c.in("x").size(c.in("x").dim() == 4 ? 1 : 2));
  for (const auto& item : quantizer->named_parameters()) {
    const auto found = c.weights.find(quantizer_name(item.key()));
    require(found != c.weights.end(), "the case has no weight `{}`", item.key());
    item.value().copy_(found->second);
  }
  quantizer->train(c.json.value("mode", "train").starts_with("train"));
  return quantizer;
}

Quantized lfq_result(const Case& c, Quantizer quantizer, const at::Tensor& x) {
  MuseDraws draws = vqgan_draws(c);
  const at::Tensor counted = c.has("in.mask") ? c.in("mask").to(at::kBool) : at::Tensor();
  return quantizer->forward(to_frames(x), &draws, true, counted);
}

// What the auxiliary loss is made of, told by weights that leave one part of it.
void check_lfq_parts(const Case& c, Checker& check, QuantizerConfig config) {
  const at::NoGradGuard no_grad;
  const auto weighted = [&](double entropy, double diversity, double commitment) {
    config.entropy_weight = entropy;
    config.diversity = diversity;
    config.lfq_commitment_weight = commitment;
    return lfq_result(c, lfq_of(c, config), c.in("x")).losses.sum();
  };
  const at::Tensor of_frames = weighted(1, 0, 0);
  if (c.has("out.per_sample_entropy"))
    check.close("per_sample_entropy", of_frames, c.out("per_sample_entropy").reshape({}));
  if (c.has("out.batch_entropy"))
    check.close("batch_entropy", of_frames - weighted(1, 1, 0), c.out("batch_entropy").reshape({}));
  if (c.has("out.commitment")) check.close("commitment", weighted(0, 0, 1), c.out("commitment").reshape({}));
}

void check_lfq(const Case& c, Checker& check) {
  QuantizerConfig config = foreign::lfq_config(c.config);
  config.entropy_sharpness = argument(c, "inv_temperature", config.entropy_sharpness);
  const at::Tensor given = c.in("x").clone().set_requires_grad(true);
  Quantizer quantizer = lfq_of(c, config);
  const Quantized result = lfq_result(c, quantizer, given);
  const at::Tensor loss = (result.vectors * to_frames(c.in("loss_weight"))).sum() + result.losses.sum();
  const at::Tensor codes = result.codes[0];  // [batch, frames, codebooks]
  check.close("quantized", result.vectors, to_frames(c.out("quantized")));
  check.close("indices", codes.reshape(c.out("indices").sizes()), c.out("indices").to(at::kLong));
  check.close("aux_loss", result.losses.sum(), c.out("aux_loss"));
  check_lfq_parts(c, check, config);
  if (!quantizer->is_training()) return;
  loss.backward();
  check.close("loss", loss, c.out("loss"));
  if (c.has("out.d_x")) check.gradient("d_x", given.grad(), c.out("d_x"));
  for (const auto& item : quantizer->named_parameters())
    if (const std::string key = "grad." + quantizer_name(item.key()); c.has(key))
      check.gradient(key, item.value().grad(), c.get(key));
}

Vqgan load(const Case& c) {
  Vqgan gan(foreign::vqgan_config(c.config));
  foreign::load(foreign::vqgan_pairs(*gan), c.weights);
  return gan;
}

void check_reconstruction(const Case& c, Checker& check) {
  const at::NoGradGuard no_grad;
  Vqgan gan = load(c);
  gan->eval();
  MuseDraws draws = vqgan_draws(c);
  const auto result = gan->vae->forward(c.in("img"), &draws);
  if (c.has("out.encoded")) check.close("encoded", result.encoded, c.out("encoded"));
  if (c.has("out.fmap")) check.close("fmap", result.features, c.out("fmap"));
  if (c.has("out.ids"))
    check.close("ids", result.ids.reshape(c.out("ids").sizes()), c.out("ids").to(at::kLong));
  if (c.has("out.aux")) check.close("aux", result.auxiliary.reshape(c.out("aux").sizes()), c.out("aux"));
  check.close("recon", result.pictures, c.out("recon"));
  if (c.has("out.decoded_from_ids"))
    check.close("decoded_from_ids", gan->vae->decode_ids(result.ids), c.out("decoded_from_ids"));
  if (c.has("out.codes"))
    check.close("codes", gan->vae->vectors_of(result.ids).permute({0, 2, 3, 1}).flatten(1, 2),
                c.out("codes"));
  check_state(c, check, foreign::vqgan_pairs(*gan), "out.state_after.");
}

double named(const muse::NamedLosses& losses, const std::string& name) {
  for (const auto& [key, value] : losses)
    if (key == name) return value.item<double>();
  fail("no loss is called {}", name);
}

void check_discriminator_loss(const Case& c, Checker& check) {
  Vqgan gan = load(c);
  gan->train();
  MuseDraws draws = vqgan_draws(c);
  const auto contest = gan->new_contest(c.in("img"), &draws, true);
  const auto result = gan->discriminator_losses(contest, c.has("out.gradient_penalty"));
  result.total.backward();
  check.close("recon", contest.fake, c.out("recon"));
  check.close("fake_logits", result.fake_logits, c.out("fake_logits"));
  check.close("real_logits", result.real_logits, c.out("real_logits"));
  check.close("discr_loss", at::scalar_tensor(named(result.named, "discriminator")), c.out("discr_loss"));
  if (c.has("out.gradient_penalty"))
    check.close("gradient_penalty", at::scalar_tensor(named(result.named, "gradient_penalty")),
                c.out("gradient_penalty"));
  check.close("loss", result.total, c.out("loss").reshape({}));
  check_gradients(c, check, foreign::vqgan_pairs(*gan), gan->config());
  check_state(c, check, foreign::vqgan_pairs(*gan), "out.state_after.");
}

// What the judges say, once more with every value that the case has. By itself the loss keeps to scalars.
void check_judges(const Case& c, Checker& check, Vqgan& gan, Vgg16 vgg) {
  if (vgg.is_empty() || !c.has("out.vgg_feats_img")) return;
  MuseDraws draws = vqgan_draws(c);
  const at::Tensor img = c.in("img");
  const auto colour = [](const at::Tensor& x) { return x.size(1) == 1 ? x.expand({-1, 3, -1, -1}) : x; };
  check.close("vgg_feats_img", vgg->forward_raw(colour(img), &draws), c.out("vgg_feats_img"));
  check.close("vgg_feats_recon", vgg->forward_raw(colour(c.out("recon")), &draws), c.out("vgg_feats_recon"));
  if (!c.has("out.d_gen_d_last")) return;
  const at::Tensor last = gan->vae->last_weight();
  draws = vqgan_draws(c);
  const at::Tensor fake = gan->vae->forward(img, &draws, false).pictures;
  draws = vqgan_draws(c);
  const auto judged = gan->judge(img, fake, muse::perception_of(vgg, /*as_upstream=*/true), &draws);
  check.gradient("d_gen_d_last", torch::autograd::grad({judged.adversarial}, {last}, {}, true)[0],
                 c.out("d_gen_d_last"));
  check.gradient("d_perceptual_d_last", torch::autograd::grad({judged.perceptual}, {last}, {}, true)[0],
                 c.out("d_perceptual_d_last"));
}

// With gradients of the judges' weights, by the whole graph; and without, by the detached reconstruction.
void check_generator_loss(const Case& c, Checker& check, bool with_judges) {
  Vqgan gan = load(c);
  gan->train();
  if (gan->has_discriminator())
    for (const at::Tensor& weight : gan->discriminator->parameters()) weight.set_requires_grad(with_judges);
  Vgg16 vgg = vgg_of(c);
  if (with_judges) check_judges(c, check, gan, vgg);
  MuseDraws draws = vqgan_draws(c);
  const auto result =
      gan->generator_losses(c.in("img"), muse::perception_of(vgg, /*as_upstream=*/true), &draws);
  result.total.backward();
  check.close("recon", result.output.pictures, c.out("recon"));
  check.close("ids", result.output.ids.reshape(c.out("ids").sizes()), c.out("ids").to(at::kLong));
  check.close("fmap", result.output.features, c.out("fmap"));
  const std::vector<std::pair<std::string, std::string>> names = {{"recon_loss", "reconstruction"},
                                                                  {"commit_loss", "auxiliary"},
                                                                  {"perceptual_loss", "perceptual"},
                                                                  {"gen_loss", "adversarial"},
                                                                  {"adaptive_weight", "adaptive_weight"}};
  for (const auto& [theirs, ours] : names)
    if (c.has("out." + theirs))
      check.close(theirs, at::scalar_tensor(named(result.named, ours)), c.out(theirs).reshape({}));
  check.close("loss", result.total, c.out("loss").reshape({}));
  check_gradients(c, check, with_judges ? foreign::vqgan_pairs(*gan) : foreign::vae_pairs(*gan->vae),
                  gan->config());
  check_state(c, check, foreign::vqgan_pairs(*gan), "out.state_after.");
}

void check_vqgan(const Case& c, Checker& check) {
  if (c.has("out.fake_logits")) return check_discriminator_loss(c, check);
  if (!c.has("out.loss")) return check_reconstruction(c, check);
  check_generator_loss(c, check, true);
  check_generator_loss(c, check, false);
}

const bool registered = register_case("muse", "Discriminator", check_discriminator) &&
                        register_case("muse", "LFQ (vector_quantize_pytorch 1.12.17)", check_lfq) &&
                        register_case("muse", "VQGanVAE", check_vqgan);

}  // namespace

}  // namespace melete::golden::muse_vqgan_cases

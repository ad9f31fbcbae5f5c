#include "systems/muse/vqgan.h"

#include <torch/autograd.h>

#include <algorithm>

#include "core/autocast.h"
#include "core/base/error.h"
#include "losses/adversarial.h"

namespace melete::muse {

namespace {

// d `of` / d `by`, weighted by `gradient` where `of` is no scalar. Mixed precision is for the forward pass.
at::Tensor gradient_of(const at::Tensor& of, const at::Tensor& by, const at::Tensor& gradient = {}) {
  const AutocastScope float32(of.device().type(), false);
  const torch::autograd::variable_list weights =
      gradient.defined() ? torch::autograd::variable_list{gradient} : torch::autograd::variable_list{};
  return torch::autograd::grad({of}, {by}, weights, /*retain_graph=*/true).front();
}

bool any_wants_gradient(const torch::nn::Module& module) {
  const auto weights = module.parameters();
  return std::any_of(weights.begin(), weights.end(), [](const at::Tensor& w) { return w.requires_grad(); });
}

// For its lifetime the module's weights are part of every graph.
class WeightsInGraph {
 public:
  explicit WeightsInGraph(const torch::nn::Module& module) {
    for (const at::Tensor& weight : module.parameters())
      if (!weight.requires_grad()) changed_.push_back(weight.set_requires_grad(true));
  }
  ~WeightsInGraph() {
    for (const at::Tensor& weight : changed_) weight.set_requires_grad(false);
  }
  WeightsInGraph(const WeightsInGraph&) = delete;
  WeightsInGraph& operator=(const WeightsInGraph&) = delete;

 private:
  std::vector<at::Tensor> changed_;
};

}  // namespace

void describe(Schema& s, VqganLossConfig& c) {
  s.option("reconstruction", c.reconstruction, "absolute or squared difference of pixels")
      .one_of({"l1", "l2"});
  s.option("adversarial", c.adversarial, "loss of the discriminator; none: there is no discriminator")
      .one_of({"hinge", "bce", "none"});
  s.option("reconstruction_weight", c.reconstruction_weight, "of the difference of pixels").at_least(0);
  s.option("perceptual_weight", c.perceptual_weight, "of the difference of VGG's features").at_least(0);
  s.option("adversarial_weight", c.adversarial_weight,
           "of convincing the discriminator, times a weight that"
           " balances it with the perceptual loss")
      .at_least(0);
  s.option("largest_adaptive_weight", c.largest_adaptive_weight, "limit of that balance").at_least(0);
  s.option("gradient_penalty_weight", c.gradient_penalty_weight, "of the discriminator's gradient penalty")
      .at_least(0);
}

void describe(Schema& s, VqganConfig& c) {
  s.section("vae", c.vae, "encoder, quantizer, decoder");
  s.section("discriminator", c.discriminator, "tells pictures from reconstructions");
  s.section("loss", c.loss, "what is asked of the autoencoder");
  s.option("as_upstream", c.as_upstream, "muse-maskgit-pytorch's own way, see docs/differences.md");
}

VqganImpl::VqganImpl(const VqganConfig& config) : config_(config) {
  vae = register_module("vae", VqganVae(config.vae));
  if (config.loss.adversarial != "none")
    discriminator = register_module(
        "discriminator", PictureDiscriminator(config.discriminator, config.vae.channels, config.vae.dim));
}

at::Tensor VqganImpl::reconstruction_loss(const at::Tensor& real, const at::Tensor& fake) const {
  return config_.loss.reconstruction == "l2" ? at::mse_loss(fake, real) : at::l1_loss(fake, real);
}

VqganImpl::Judgement VqganImpl::judge(const at::Tensor& real, const at::Tensor& fake,
                                      const Perception& perceive, Draws* draws) {
  Judgement judgement;
  if (perceive && config_.loss.perceptual_weight > 0) {
    Draws* const dropout = is_training() ? draws : nullptr;
    const at::Tensor wanted = perceive(real, dropout).to(at::kFloat);
    judgement.perceptual = at::mse_loss(perceive(fake, dropout).to(at::kFloat), wanted);
  }
  if (has_discriminator()) {
    judgement.adversarial_logits = discriminator(fake);
    judgement.adversarial = config_.loss.adversarial == "hinge"
                                ? hinge_generator_loss(judgement.adversarial_logits)
                                : bce_generator_loss(judgement.adversarial_logits);
  }
  return judgement;
}

at::Tensor VqganImpl::adaptive_weight(const at::Tensor& gradient_of_loss,
                                      const at::Tensor& gradient_of_adversarial) const {
  return (gradient_of_loss.norm() / at::clamp_min(gradient_of_adversarial.norm(), 1e-8))
      .clamp_max(config_.loss.largest_adaptive_weight)
      .detach();
}

// The whole graph: gradients for the judges' weights as well.
at::Tensor VqganImpl::judged_directly(const at::Tensor& reconstruction, const Judgement& judgement,
                                      NamedLosses& named) {
  at::Tensor total = at::zeros_like(reconstruction);
  if (judgement.perceptual.defined()) {
    total = total + config_.loss.perceptual_weight * judgement.perceptual;
    named.emplace_back("perceptual", judgement.perceptual.detach());
  }
  if (!judgement.adversarial.defined()) return total;
  named.emplace_back("adversarial", judgement.adversarial.detach());
  if (!at::GradMode::is_enabled()) return total;
  const at::Tensor last = vae->last_weight();
  const at::Tensor& balanced = judgement.perceptual.defined() ? judgement.perceptual : reconstruction;
  const at::Tensor weight =
      adaptive_weight(gradient_of(balanced, last), gradient_of(judgement.adversarial, last));
  named.emplace_back("adaptive_weight", weight);
  return total + config_.loss.adversarial_weight * weight * judgement.adversarial;
}

// A scalar with the value of the judges' losses whose gradient reaches the autoencoder through `fake` alone.
at::Tensor VqganImpl::judged_detached(const at::Tensor& real, const at::Tensor& fake,
                                      const at::Tensor& reconstruction, const Perception& perceive,
                                      Draws* draws, Contest* contest, NamedLosses& named) {
  const at::Tensor seen = fake.detach().requires_grad_();
  Judgement judgement;
  if (contest != nullptr && has_discriminator()) {
    // The graph is recorded with the discriminator's weights in it, for its own phase later; here only the
    // gradient of the pixels is asked for, so no gradient of a weight is computed.
    const WeightsInGraph recorded(*discriminator);
    judgement = judge(real, seen, perceive, draws);
    contest->fake_logits = judgement.adversarial_logits;
  } else {
    judgement = judge(real, seen, perceive, draws);
  }
  const auto& weights = config_.loss;
  at::Tensor value = at::zeros_like(reconstruction.detach()), pixels;
  if (judgement.perceptual.defined()) {
    pixels = gradient_of(judgement.perceptual, seen);
    value = value + weights.perceptual_weight * judgement.perceptual.detach();
    named.emplace_back("perceptual", judgement.perceptual.detach());
  }
  if (judgement.adversarial.defined()) {
    const at::Tensor last = vae->last_weight();
    const at::Tensor adversarial = gradient_of(judgement.adversarial, seen);
    const at::Tensor weight = adaptive_weight(
        pixels.defined() ? gradient_of(fake, last, pixels) : gradient_of(reconstruction, last),
        gradient_of(fake, last, adversarial));
    const at::Tensor share = weights.adversarial_weight * weight;
    pixels =
        pixels.defined() ? weights.perceptual_weight * pixels + share * adversarial : share * adversarial;
    value = value + share * judgement.adversarial.detach();
    named.emplace_back("adversarial", judgement.adversarial.detach());
    named.emplace_back("adaptive_weight", weight);
  } else if (pixels.defined()) {
    pixels = weights.perceptual_weight * pixels;
  }
  if (!pixels.defined()) return value;
  const at::Tensor carrier = (fake * pixels).sum();
  return carrier + (value - carrier).detach();
}

VqganImpl::GeneratorLosses VqganImpl::generator_losses(const at::Tensor& pictures, const Perception& perceive,
                                                       Draws* draws, Contest* contest) {
  GeneratorLosses result;
  result.output = vae->forward(pictures, draws);
  const at::Tensor fake = result.output.pictures.to(at::kFloat);
  if (contest != nullptr) *contest = {pictures.detach(), fake.detach(), {}};
  const at::Tensor reconstruction = reconstruction_loss(pictures, fake);
  result.named = {{"reconstruction", reconstruction.detach()},
                  {"auxiliary", result.output.auxiliary.detach()}};

  const bool direct =
      !at::GradMode::is_enabled() || (has_discriminator() && any_wants_gradient(*discriminator));
  const at::Tensor judged =
      direct ? judged_directly(reconstruction, judge(pictures, fake, perceive, draws), result.named)
             : judged_detached(pictures, fake, reconstruction, perceive, draws, contest, result.named);
  result.total = config_.loss.reconstruction_weight * reconstruction + judged;
  if (has_discriminator() || !config_.as_upstream) result.total = result.total + result.output.auxiliary;
  return result;
}

VqganImpl::Contest VqganImpl::new_contest(const at::Tensor& pictures, Draws* draws, bool update) {
  const at::NoGradGuard no_grad;
  return {pictures.detach(), vae->forward(pictures, draws, update).pictures.to(at::kFloat), {}};
}

VqganImpl::DiscriminatorLosses VqganImpl::discriminator_losses(const Contest& contest,
                                                               bool with_gradient_penalty) {
  require(has_discriminator(), "[vqgan] there is no discriminator to train; set loss.adversarial");
  DiscriminatorLosses result;
  at::Tensor real = contest.real.detach();
  if (with_gradient_penalty) real.requires_grad_();
  result.fake_logits =
      contest.fake_logits.defined() ? contest.fake_logits : discriminator(contest.fake.detach());
  result.real_logits = discriminator(real);
  result.total = config_.loss.adversarial == "hinge"
                     ? hinge_discriminator_loss(result.fake_logits, result.real_logits)
                     : bce_discriminator_loss(result.fake_logits, result.real_logits);
  result.named.emplace_back("discriminator", result.total.detach());
  if (!with_gradient_penalty) return result;
  const AutocastScope float32(real.device().type(), false);
  const at::Tensor penalty =
      gradient_penalty(real, result.real_logits.sum(), config_.loss.gradient_penalty_weight);
  result.named.emplace_back("gradient_penalty", penalty.detach());
  result.total = result.total + penalty;
  return result;
}

}  // namespace melete::muse

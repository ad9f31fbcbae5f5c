// The VQ-GAN autoencoder with what trains it: discriminator and losses.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "systems/muse/picture_discriminator.h"
#include "systems/muse/vqgan_vae.h"

namespace melete::muse {

struct VqganLossConfig {
  std::string reconstruction = "l1";
  std::string adversarial = "hinge";
  double reconstruction_weight = 1;
  double perceptual_weight = 1;
  double adversarial_weight = 1;  // times the adaptive weight
  double largest_adaptive_weight = 1e4;
  double gradient_penalty_weight = 10;
};
void describe(Schema& schema, VqganLossConfig& config);

struct VqganConfig {
  VqganVaeConfig vae;
  PictureDiscriminatorConfig discriminator;
  VqganLossConfig loss;
  // muse-maskgit-pytorch's own way where it differs, see docs/differences.md: VGG sees plain pixels and its
  // dropout is on; without a discriminator the quantizer's losses are left out, too.
  bool as_upstream = false;
};
void describe(Schema& schema, VqganConfig& config);

using NamedLosses = std::vector<std::pair<std::string, at::Tensor>>;

// What a network that nobody trains here (VGG) sees in pictures, by which a reconstruction is compared with
// its picture: [batch, channels, height, width] in [0, 1] -> [batch, features]. draws: of its dropout, none
// in eval. Empty: there is no perceptual loss.
using Perception = std::function<at::Tensor(const at::Tensor& pictures, Draws* draws)>;

struct VqganImpl : torch::nn::Module {
  explicit VqganImpl(const VqganConfig& config);

  // Pictures and reconstructions before the discriminator. What the generator's phase has judged already, the
  // discriminator's phase takes from here and pays for no second pass.
  struct Contest {
    at::Tensor real, fake;   // [batch, channels, height, width], without gradient
    at::Tensor fake_logits;  // leads to the discriminator's weights; undefined when it is still to be judged
  };

  struct GeneratorLosses {
    at::Tensor total;
    // Unweighted: reconstruction, auxiliary (the quantizer's), perceptual, adversarial, adaptive_weight;
    // those that there are.
    NamedLosses named;
    VqganVaeImpl::Output output;
  };
  // pictures as in VqganVaeImpl. With `contest` the reconstruction and its judgement are kept there.
  //
  // Gradients reach the discriminator's weights only where those require them; then, and only then, the whole
  // graph is kept. Else both judges see a detached reconstruction, and what they say of each pixel is put
  // through the decoder once.
  GeneratorLosses generator_losses(const at::Tensor& pictures, const Perception& perceive, Draws* draws,
                                   Contest* contest = nullptr);

  // Reconstructions of new pictures, made without gradient. update: see VqganVaeImpl.
  Contest new_contest(const at::Tensor& pictures, Draws* draws, bool update);

  struct DiscriminatorLosses {
    at::Tensor total;
    NamedLosses named;  // discriminator, and gradient_penalty where it was asked for
    at::Tensor real_logits, fake_logits;
  };
  DiscriminatorLosses discriminator_losses(const Contest& contest, bool with_gradient_penalty);

  bool has_discriminator() const { return !discriminator.is_empty(); }
  const VqganConfig& config() const { return config_; }

  VqganVae vae{nullptr};
  PictureDiscriminator discriminator{nullptr};  // none: adversarial = "none"

  // What the judges say of a reconstruction, unweighted; undefined where there is no such judge.
  struct Judgement {
    at::Tensor perceptual, adversarial;
    at::Tensor adversarial_logits;
  };
  Judgement judge(const at::Tensor& real, const at::Tensor& fake, const Perception& perceive, Draws* draws);
  // How much of the adversarial loss balances the other one in the decoder's last layer.
  at::Tensor adaptive_weight(const at::Tensor& gradient_of_loss,
                             const at::Tensor& gradient_of_adversarial) const;

  at::Tensor reconstruction_loss(const at::Tensor& real, const at::Tensor& fake) const;

 private:
  at::Tensor judged_directly(const at::Tensor& reconstruction, const Judgement& judgement,
                             NamedLosses& named);
  at::Tensor judged_detached(const at::Tensor& real, const at::Tensor& fake, const at::Tensor& reconstruction,
                             const Perception& perceive, Draws* draws, Contest* contest, NamedLosses& named);

  VqganConfig config_;
};
TORCH_MODULE(Vqgan);

}  // namespace melete::muse

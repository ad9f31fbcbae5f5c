#include "losses/adversarial.h"

#include <torch/autograd.h>

#include "core/autocast.h"

namespace melete {

at::Tensor hinge_generator_loss(const at::Tensor& fake_logits) {
  return -fake_logits.to(at::kFloat).mean();
}

at::Tensor hinge_discriminator_loss(const at::Tensor& fake_logits, const at::Tensor& real_logits) {
  return (at::relu(1 + fake_logits.to(at::kFloat)) + at::relu(1 - real_logits.to(at::kFloat))).mean();
}

at::Tensor bce_generator_loss(const at::Tensor& fake_logits) {
  return at::softplus(-fake_logits.to(at::kFloat)).mean();
}

at::Tensor bce_discriminator_loss(const at::Tensor& fake_logits, const at::Tensor& real_logits) {
  return (at::softplus(fake_logits.to(at::kFloat)) + at::softplus(-real_logits.to(at::kFloat))).mean();
}

at::Tensor gradient_penalty(const at::Tensor& input, const at::Tensor& loss, double weight) {
  // LibTorch 1.13's device threads take over that autocast is on, but not its type.
  const AutocastScope off(input.device().type(), false);
  const auto gradients =
      torch::autograd::grad({loss}, {input}, {}, /*retain_graph=*/true, /*create_graph=*/true);
  const at::Tensor norms = gradients[0].to(at::kFloat).flatten(1).norm(2, {1});
  return weight * (norms - 1).square().mean();
}

}  // namespace melete

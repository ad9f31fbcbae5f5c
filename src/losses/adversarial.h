// Losses of a generator against its discriminators.
#pragma once

#include <ATen/ATen.h>

#include <vector>

namespace melete {

at::Tensor hinge_generator_loss(const at::Tensor& fake_logits);
at::Tensor hinge_discriminator_loss(const at::Tensor& fake_logits, const at::Tensor& real_logits);

// Pulls the norm of d loss / d wave, one norm a batch item, to one. wave must require gradients and lead to
// loss.
at::Tensor gradient_penalty(const at::Tensor& wave, const at::Tensor& loss, double weight = 10);

}  // namespace melete

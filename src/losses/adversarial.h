// Losses of a generator against its discriminators.
#pragma once

#include <ATen/ATen.h>

#include <vector>

namespace melete {

at::Tensor hinge_generator_loss(const at::Tensor& fake_logits);
at::Tensor hinge_discriminator_loss(const at::Tensor& fake_logits, const at::Tensor& real_logits);

// Binary cross entropy of the same judgements.
at::Tensor bce_generator_loss(const at::Tensor& fake_logits);
at::Tensor bce_discriminator_loss(const at::Tensor& fake_logits, const at::Tensor& real_logits);

// Losses of a discriminator that cannot tell, and says 0 to everything.
constexpr double kHingeOfGuessing = 2;
constexpr double kBceOfGuessing = 1.3862943611198906;  // 2 ln 2

// Pulls the norm of d loss / d input, one norm a batch item, to one. input must require gradients and lead to
// loss.
at::Tensor gradient_penalty(const at::Tensor& input, const at::Tensor& loss, double weight = 10);

}  // namespace melete

// Lion (Chen et al. 2023) in one pass over a parameter: a step of one size in the direction of the sign of a
// mean gradient, with decoupled weight decay.
#pragma once

#include <ATen/ATen.h>

namespace melete {

struct LionSettings {
  double learning_rate = 1e-4;
  double beta1 = 0.9;         // share of the mean in the direction
  double beta2 = 0.99;        // share of the mean that is kept
  double weight_decay = 0;    // the parameter shrinks by learning_rate * weight_decay before it moves
  double gradient_scale = 1;  // multiplies the gradient as it is read
};

// parameter, gradient and mean have one shape; all but the gradient change in place. Contiguous float32 on
// the CPU takes the fused loop, anything else the plain form below.
void lion_update(at::Tensor& parameter, const at::Tensor& gradient, at::Tensor& mean,
                 const LionSettings& settings);

// The same in LibTorch's own operations: other devices and types take it, tests compare against it.
void lion_update_plain(at::Tensor& parameter, const at::Tensor& gradient, at::Tensor& mean,
                       const LionSettings& settings);

}  // namespace melete

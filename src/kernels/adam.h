// One pass over a parameter: both moments, bias correction, decoupled weight decay and the gradient's scale,
// so that clipping costs no pass of its own. The arithmetic is that of torch.optim.Adam and AdamW.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>

namespace melete {

struct AdamSettings {
  double learning_rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.99;
  double eps = 1e-8;
  double weight_decay = 0;  // AdamW's: the parameter shrinks by learning_rate * weight_decay before it moves
  double gradient_scale = 1;  // multiplies the gradient as it is read
  int64_t step = 1;           // of this parameter, counted from 1
};

// parameter, gradient, first and second moment have one shape; all but the gradient change in place.
// Contiguous float32 on the CPU takes the fused loop, anything else the plain form below.
void adam_update(at::Tensor& parameter, const at::Tensor& gradient, at::Tensor& first_moment,
                 at::Tensor& second_moment, const AdamSettings& settings);

// The same in LibTorch's own operations: other devices and types take it, tests compare against it.
void adam_update_plain(at::Tensor& parameter, const at::Tensor& gradient, at::Tensor& first_moment,
                       at::Tensor& second_moment, const AdamSettings& settings);

}  // namespace melete

// ModReLU of complex channels: relu(|z| + b) * z / |z|, without angle and exponential, one pass forward, one
// backward.
#pragma once

#include <ATen/ATen.h>

namespace melete {

// x [batch, 2 * channels, height, width]: real parts of all channels, then imaginary ones. bias is a scalar
// tensor. Differentiable twice (gradient penalties need that).
at::Tensor mod_relu(const at::Tensor& x, const at::Tensor& bias);

// The same by LibTorch's operators: for other devices, and what tests compare with.
at::Tensor mod_relu_reference(const at::Tensor& x, const at::Tensor& bias);

}  // namespace melete

// Pointwise work on complex activations, one pass forward and one backward.
#pragma once

#include "kernels/complex_pair.h"

namespace melete {

// ModReLU without angle and exponential: relu(|z| + threshold) * z / |z|. threshold is a scalar tensor.
// Differentiable twice (gradient penalties need that).
ComplexPair mod_relu(const ComplexPair& z, const at::Tensor& threshold);

// Mean of |a - b|, a scalar float32 tensor.
at::Tensor mean_distance(const ComplexPair& a, const ComplexPair& b);

// The same by LibTorch's operators: for other devices, and what tests compare with.
ComplexPair mod_relu_reference(const ComplexPair& z, const at::Tensor& threshold);
at::Tensor mean_distance_reference(const ComplexPair& a, const ComplexPair& b);

}  // namespace melete

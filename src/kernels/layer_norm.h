// Layer normalisation of rows, plain or of value * gelu(gate), and its gradient, each in one pass over
// memory. float32 on the CPU.
#pragma once

#include <ATen/ATen.h>

namespace melete {

constexpr double kNormEpsilon = 1e-5;

enum class NormInput {
  plain,  // rows [n]
  gated,  // rows [value, gate], 2 * n: value * gelu(gate) is normalised
};

bool has_layer_norm(const at::Tensor& x);

struct LayerNormOutput {
  at::Tensor values;         // [..., n]
  at::Tensor mean, inverse;  // [..., 1]: of each row, and one over its deviation
};
// weight [n], bias [n] or undefined
LayerNormOutput layer_norm_forward(const at::Tensor& x, NormInput input, const at::Tensor& weight,
                                   const at::Tensor& bias);

struct LayerNormGradient {
  at::Tensor x, weight, bias;
};
// The result is the same on any number of threads.
LayerNormGradient layer_norm_backward(const at::Tensor& gradient, const at::Tensor& x, NormInput input,
                                      const at::Tensor& weight, const at::Tensor& mean,
                                      const at::Tensor& inverse);

}  // namespace melete

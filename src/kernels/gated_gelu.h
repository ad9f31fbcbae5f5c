// value * gelu(gate) over rows of both, and its gradient, each in one pass.
#pragma once

#include <ATen/ATen.h>

namespace melete {

enum class GateOrder {
  value_first,  // rows [value, gate]
  gate_first,   // rows [gate, value]
};

// Whether these kernels take the tensor: float32 or bfloat16 on the CPU.
bool has_gated_gelu(const at::Tensor& x);

// x [..., 2 * n] -> [..., n]
at::Tensor gated_gelu_forward(const at::Tensor& x, GateOrder order);
// gradient [..., n] of the result -> [..., 2 * n]
at::Tensor gated_gelu_backward(const at::Tensor& gradient, const at::Tensor& x, GateOrder order);

// One row without tensors: row [2 * n] -> y [n]
void gated_gelu_row(const float* row, float* y, int64_t n, GateOrder order);

}  // namespace melete

// Products of rows with the weights of a layer, like kernels/matrix_product.h, with both factors rounded to
// bf16 on their way into the cache: float32 goes in, sums are float32, float32 comes out. What lies between
// two products stays float32, so that every other kernel takes it as it is. For processors with AVX-512's
// bf16 instructions; the result is the same on any number of threads.
#pragma once

#include <ATen/ATen.h>

namespace melete {

// Whether x [..., in] and weight [out, in] may be multiplied so: float32 on a CPU that has the instructions.
bool has_bf16_product(const at::Tensor& x, const at::Tensor& weight);

// x [..., in], bias [out] or undefined -> [..., out]: x times the transposed weight, plus the bias
at::Tensor bf16_rows_by_weight(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);
// gradient [..., out] of that -> [..., in], the gradient of x
at::Tensor bf16_rows_gradient(const at::Tensor& gradient, const at::Tensor& weight);
// gradient [..., out], x [..., in] -> [out, in], the gradient of the weight
at::Tensor bf16_weight_gradient(const at::Tensor& gradient, const at::Tensor& x);

}  // namespace melete

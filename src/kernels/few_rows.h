// A matrix product for a few rows, as when a transformer makes one token: limited by how fast the weights
// can be read, so each is read once, for all rows.
#pragma once

#include <ATen/ATen.h>

namespace melete {

constexpr int64_t kFewRows = 8;

// x [..., in] with at most kFewRows rows, weight [out, in], bias [out] or undefined -> [..., out]; float32 on
// the CPU, without gradients.
at::Tensor linear_few_rows(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

}  // namespace melete

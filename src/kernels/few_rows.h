// A matrix product for a few rows, as when a transformer makes one token: limited by how fast the weights
// can be read, so each is read once, for all rows.
#pragma once

#include <ATen/ATen.h>

namespace melete {

constexpr int64_t kFewRows = 8;

// The weights of a layer as this product reads them: float32 as they are, or rounded to bf16, which is half
// as much to read. float32, on the CPU, without gradients.
class RowWeights {
 public:
  RowWeights() = default;
  RowWeights(const at::Tensor& weight, bool bf16);  // [out, in]

  int64_t inputs() const { return in_; }
  int64_t outputs() const { return out_; }

  // y[row][o] = bias[o] + sum of x[row][i] * weight[o][i]; x [rows, inputs] and at most kFewRows of them,
  // rows of y start y_step apart; bias may be null. add: to what is in y.
  void multiply(const float* x, int64_t rows, const float* bias, float* y, int64_t y_step,
                bool add = false) const;

 private:
  at::Tensor values_;  // float32 [out, in], or int32 [out, blocks, 16]: see few_rows.cpp
  int64_t in_ = 0, out_ = 0;
  bool bf16_ = false;
};

// x [..., in] with at most kFewRows rows, weight [out, in], bias [out] or undefined -> [..., out]
at::Tensor linear_few_rows(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

}  // namespace melete

// A matrix product for a few rows, as when a transformer makes one token: limited by how fast the weights
// can be read, so each is read once, for all rows.
#pragma once

#include <ATen/ATen.h>

#include "kernels/weight_storage.h"

namespace melete {

constexpr int64_t kFewRows = 8;

// The weights of a layer as this product reads them: float32 as they are, rounded to bf16, which is half as
// much to read, or to int8 with a scale for every 64 inputs of an output, a quarter. Inputs and sums are
// float32. On the CPU, without gradients.
class RowWeights {
 public:
  RowWeights() = default;
  RowWeights(const at::Tensor& weight, WeightStorage storage);  // float32 [out, in]

  int64_t inputs() const { return in_; }
  int64_t outputs() const { return out_; }

  // y[row][o] = bias[o] + sum of x[row][i] * weight[o][i]; x [rows, inputs] and at most kFewRows of them,
  // rows of y start y_step apart; bias may be null. add: to what is in y.
  void multiply(const float* x, int64_t rows, const float* bias, float* y, int64_t y_step,
                bool add = false) const;
  // x [..., in], bias [out] or undefined -> [..., out]
  at::Tensor multiply(const at::Tensor& x, const at::Tensor& bias) const;
  // The gradient of x: gradient [..., out] times the weights, which are float32 -> [..., in]
  at::Tensor multiply_back(const at::Tensor& gradient) const;

 private:
  at::Tensor values_;  // see weight_layouts.h
  int64_t in_ = 0, out_ = 0;
  WeightStorage storage_ = WeightStorage::float32;
};

// Whether such a product is the way for x [..., in]: few rows of float32 on the CPU, nothing to
// differentiate.
bool takes_few_rows(const at::Tensor& x);
// The same where weights that nobody trains are passed by on the way to a gradient.
bool takes_few_rows_of_frozen(const at::Tensor& x, const at::Tensor& weight);

}  // namespace melete

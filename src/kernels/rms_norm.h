// RMS normalisation of rows, x / |x| * sqrt(n) * gain + shift, and its gradient, each in one pass over
// memory. Gains may differ between rows: for every head of a position, or for every item of a batch. float32
// on the CPU; the result is the same on any number of threads.
#pragma once

#include <ATen/ATen.h>

namespace melete {

constexpr double kShortestRow = 1e-12;  // a row that is shorter is divided by this

bool has_rms_norm(const at::Tensor& x);

// Which gain [gains, n] a row of x takes.
enum class GainOf {
  head,  // x [..., gains, n]: the one of its place
  item,  // x [gains, ..., n]: the one of its item
};

struct RmsNormInput {
  at::Tensor x;            // [..., n]
  at::Tensor gain, shift;  // [gains, n]; shift may be undefined
  GainOf gain_of = GainOf::head;
};

struct RmsNormOutput {
  at::Tensor values;   // as x
  at::Tensor inverse;  // [rows]: sqrt(n) / |x|
};
RmsNormOutput rms_norm_forward(const RmsNormInput& input);
// One row without tensors, without a shift: x, gain and y [n]; y is not x
void rms_norm_row(const float* x, const float* gain, float* y, int64_t n);

struct RmsNormGradient {
  at::Tensor x, gain, shift;
};
RmsNormGradient rms_norm_backward(const RmsNormInput& input, const at::Tensor& inverse,
                                  const at::Tensor& gradient);

}  // namespace melete

// The arithmetic of convolutions over time in fp32 on time-major frames, [batch, time, channels]: a window of
// frames is read in place (any stride and dilation, no unfolding), weights are packed into panels of columns.
#pragma once

#include <ATen/ATen.h>

namespace melete {

// How windows of frames are read: row t of an item is `taps` runs of `depth` floats, `tap_step` apart, the
// first one at t * row_step.
struct FrameWindows {
  int64_t batch, rows, batch_step, row_step;
  int64_t taps, tap_step, depth;
};

enum class Activation { none, elu };

// Columns must be a multiple of this for the functions below.
constexpr int64_t kFrameColumns = 16;

// weight [out, in, kernel] as the matrix [kernel * in, out] of a convolution's forward pass, and (taps in
// reverse) as the matrix [kernel / stride * out, stride * in] of its input's gradient; both in the order that
// frame_product reads.
at::Tensor pack_weight(const at::Tensor& weight);
at::Tensor pack_weight_for_input(const at::Tensor& weight, int64_t stride);

// y [batch, rows, columns] = activation(windows of x * matrix + bias); bias may be null.
void frame_product(const FrameWindows& windows, const float* x, const at::Tensor& packed, const float* bias,
                   Activation activation, at::Tensor& y);

// The gradient of weight [columns, depth, taps] and of bias [columns]: windows of x, transposed, times
// gradient [batch, rows, columns].
std::pair<at::Tensor, at::Tensor> frame_product_weight_gradient(const FrameWindows& windows, const float* x,
                                                                const at::Tensor& gradient);

}  // namespace melete

// Convolutions over time in which every channel sees only itself, fp32, on time-major frames.
#pragma once

#include <ATen/ATen.h>

namespace melete {

bool has_depthwise(const at::Tensor& x);  // whether the functions below take it

// x [batch, time, channels], taps [kernel, channels] with an odd kernel, bias [channels] or undefined; zeros
// beyond both ends. -> [batch, time, channels]
at::Tensor depthwise(const at::Tensor& x, const at::Tensor& taps, const at::Tensor& bias);

// The gradient of taps: [kernel, channels]. The same bits on any number of threads.
at::Tensor depthwise_taps_gradient(const at::Tensor& x, const at::Tensor& gradient, int64_t kernel);

}  // namespace melete

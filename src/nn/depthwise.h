// A convolution over time in which every channel sees only itself.
#pragma once

#include <ATen/ATen.h>

namespace melete {

// x [batch, time, channels], weight [channels, 1, kernel] with an odd kernel, bias [channels]; zeros beyond
// both ends, as many frames as before. With gradients; on a CPU in fp32 by a kernel of our own.
at::Tensor depthwise_over_time(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

}  // namespace melete

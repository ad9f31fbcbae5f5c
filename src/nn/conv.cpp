#include "nn/conv.h"

#include <torch/autograd.h>

#include <cmath>

#include "core/base/error.h"

namespace melete {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Left padding with one copy forward and one backward; the composition of slice, flip and cat would allocate
// and add whole activations in its gradient.
struct PadLeft : torch::autograd::Function<PadLeft> {
  // frames [batch, time, channels]
  static at::Tensor forward(AutogradContext* context, const at::Tensor& frames, int64_t count, bool reflect) {
    context->saved_data["count"] = count;
    context->saved_data["reflect"] = reflect;
    const at::Tensor head = reflect ? frames.narrow(1, 1, count).flip(1)
                                    : at::zeros({frames.size(0), count, frames.size(2)}, frames.options());
    return at::cat({head, frames}, 1);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const int64_t count = context->saved_data["count"].toInt();
    const at::Tensor& padded = gradients[0];
    at::Tensor gradient = padded.narrow(1, count, padded.size(1) - count).clone(at::MemoryFormat::Contiguous);
    if (context->saved_data["reflect"].toBool())
      gradient.narrow(1, 1, count).add_(padded.narrow(1, 0, count).flip(1));
    return {gradient, at::Tensor(), at::Tensor()};
  }
};

at::Tensor uniform_parameter(at::IntArrayRef shape, int64_t fan_in) {
  const double bound = 1.0 / std::sqrt(static_cast<double>(fan_in));
  return at::empty(shape).uniform_(-bound, bound);
}

at::Tensor to_frames(const at::Tensor& x) {
  return time_major(x).transpose(1, 2);
}  // [batch, time, channels]

}  // namespace

at::Tensor time_major(const at::Tensor& x) {
  return x.transpose(1, 2).contiguous().transpose(1, 2);
}

at::Tensor convolve(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, int64_t stride,
                    int64_t dilation) {
  // [batch, channels, 1, time] in channels-last memory
  const at::Tensor image = time_major(x).unsqueeze(2);
  const at::Tensor kernel = weight.unsqueeze(2).contiguous(at::MemoryFormat::ChannelsLast);
  const int64_t strides[] = {1, stride}, paddings[] = {0, 0}, dilations[] = {1, dilation};
  return at::conv2d(image, kernel, bias, at::IntArrayRef(strides), at::IntArrayRef(paddings),
                    at::IntArrayRef(dilations))
      .squeeze(2);
}

at::Tensor pad_left(const at::Tensor& x, int64_t count, const std::string& mode) {
  if (count == 0) return x;
  const bool reflect = mode == "reflect";
  require(!reflect || x.size(2) > count,
          "[pad_left] reflect padding of {} frames needs more than {} frames, got {}; use longer audio or "
          "pad_mode = \"constant\"",
          count, count, x.size(2));
  return PadLeft::apply(to_frames(x), count, reflect).transpose(1, 2);
}

CausalConv1dImpl::CausalConv1dImpl(int64_t in, int64_t out, int64_t kernel, std::string pad_mode,
                                   int64_t stride, int64_t dilation)
    : pad_mode_(std::move(pad_mode)),
      stride_(stride),
      dilation_(dilation),
      padding_(dilation * (kernel - 1) + 1 - stride) {
  weight = register_parameter("weight", uniform_parameter({out, in, kernel}, in * kernel));
  bias = register_parameter("bias", uniform_parameter({out}, in * kernel));
}

at::Tensor CausalConv1dImpl::forward(const at::Tensor& x) {
  const at::Tensor padded = pad_left(x, padding_, pad_mode_);
  const int64_t out = weight.size(0), in = weight.size(1), kernel = weight.size(2), time = padded.size(2);
  if (stride_ == 1 || kernel % stride_ != 0 || time % stride_ != 0)
    return convolve(padded, weight, bias, stride_, dilation_);
  // Space to depth: `stride` frames side by side become one wide frame, and the convolution strides no more.
  const int64_t blocks = kernel / stride_;
  const at::Tensor wide =
      to_frames(padded).reshape({x.size(0), time / stride_, stride_ * in}).transpose(1, 2);
  const at::Tensor wide_weight =
      weight.view({out, in, blocks, stride_}).permute({0, 3, 1, 2}).reshape({out, stride_ * in, blocks});
  return convolve(wide, wide_weight, bias);
}

CausalConvTranspose1dImpl::CausalConvTranspose1dImpl(int64_t in, int64_t out, int64_t kernel, int64_t stride)
    : stride_(stride), taps_((kernel + stride - 1) / stride) {
  weight = register_parameter("weight", uniform_parameter({in, out, kernel}, out * kernel));
  bias = register_parameter("bias", uniform_parameter({out}, out * kernel));
}

at::Tensor CausalConvTranspose1dImpl::forward(const at::Tensor& x) {
  const int64_t in = weight.size(0), out = weight.size(1), batch = x.size(0), time = x.size(2);
  const at::Tensor filled = at::constant_pad_nd(weight, {0, taps_ * stride_ - weight.size(2)});
  // Output frame t * stride + r sees input frames t, t - 1, ... through taps r, r + stride, ...
  const at::Tensor phases = filled.view({in, out, taps_, stride_})
                                .flip(2)
                                .permute({3, 1, 0, 2})  // [stride, out, in, taps], oldest tap first
                                .reshape({stride_ * out, in, taps_});
  const at::Tensor y = convolve(pad_left(x, taps_ - 1, "constant"), phases, bias.repeat({stride_}));
  return to_frames(y).reshape({batch, time * stride_, out}).transpose(1, 2);
}

}  // namespace melete

#include "nn/conv.h"

#include <torch/autograd.h>

#include <cmath>

#include "core/autocast.h"
#include "core/base/error.h"
#include "kernels/frame_conv.h"

namespace melete {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor with_left_padding(const at::Tensor& frames, int64_t count, bool reflect) {
  const at::Tensor head = reflect ? frames.narrow(1, 1, count).flip(1)
                                  : at::zeros({frames.size(0), count, frames.size(2)}, frames.options());
  return at::cat({head, frames}, 1);
}

// The gradient of the frames from that of the padded frames, which is written into. A view.
at::Tensor without_left_padding(const at::Tensor& padded, int64_t count, bool reflect) {
  const at::Tensor gradient = padded.narrow(1, count, padded.size(1) - count);
  if (reflect) gradient.narrow(1, 1, count).add_(padded.narrow(1, 0, count).flip(1));
  return gradient;
}

// Left padding with one copy forward and one backward; the composition of slice, flip and cat would allocate
// and add whole activations in its gradient.
struct PadLeft : torch::autograd::Function<PadLeft> {
  // frames [batch, time, channels]
  static at::Tensor forward(AutogradContext* context, const at::Tensor& frames, int64_t count, bool reflect) {
    context->saved_data["count"] = count;
    context->saved_data["reflect"] = reflect;
    return with_left_padding(frames, count, reflect);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const at::Tensor padded = gradients[0].clone(at::MemoryFormat::Contiguous);
    return {without_left_padding(padded, context->saved_data["count"].toInt(),
                                 context->saved_data["reflect"].toBool()),
            at::Tensor(), at::Tensor()};
  }
};

// How a convolution runs over frames.
struct Windowing {
  int64_t stride = 1, dilation = 1, padding = 0;
  bool reflect = false;
};

// The plain convolution by LibTorch. frames [batch, time, in], padded
at::Tensor library_convolve(const at::Tensor& frames, const at::Tensor& weight, const at::Tensor& bias,
                            int64_t stride, int64_t dilation) {
  // LibTorch has no fast convolution of one tap.
  if (weight.size(2) == 1 && stride == 1) return at::linear(frames, weight.squeeze(2), bias);
  // [batch, channels, 1, time] in channels-last memory
  const at::Tensor image = frames.transpose(1, 2).unsqueeze(2);
  const at::Tensor kernel = weight.unsqueeze(2).contiguous(at::MemoryFormat::ChannelsLast);
  const int64_t strides[] = {1, stride}, paddings[] = {0, 0}, dilations[] = {1, dilation};
  return at::conv2d(image, kernel, bias, at::IntArrayRef(strides), at::IntArrayRef(paddings),
                    at::IntArrayRef(dilations))
      .squeeze(2)
      .transpose(1, 2);
}

at::Tensor library_convolve(const at::Tensor& frames, const at::Tensor& weight, const at::Tensor& bias,
                            const Windowing& how, Activation activation) {
  const at::Tensor padded = how.padding > 0 ? PadLeft::apply(frames, how.padding, how.reflect) : frames;
  const int64_t batch = padded.size(0), time = padded.size(1), stride = how.stride;
  const int64_t out = weight.size(0), in = weight.size(1), kernel = weight.size(2);
  at::Tensor y;
  if (stride == 1 || kernel % stride != 0 || time % stride != 0 || how.dilation != 1) {
    y = library_convolve(padded, weight, bias, stride, how.dilation);
  } else {
    // Space to depth: `stride` frames side by side become one wide frame, and the convolution strides no
    // more.
    const int64_t blocks = kernel / stride;
    const at::Tensor wide_weight =
        weight.view({out, in, blocks, stride}).permute({0, 3, 1, 2}).reshape({out, stride * in, blocks});
    y = library_convolve(padded.reshape({batch, time / stride, stride * in}), wide_weight, bias, 1, 1);
  }
  return activation == Activation::elu ? at::elu(y) : y;
}

// Padding, convolution and ELU in fp32 by our own kernels, which beat LibTorch's in the backward pass.
struct FrameConv : torch::autograd::Function<FrameConv> {
  static bool can_run(const at::Tensor& x, const at::Tensor& weight, const Windowing& how) {
    const int64_t stride = how.stride, time = x.size(1) + how.padding;
    return x.is_cpu() && x.scalar_type() == at::kFloat && weight.scalar_type() == at::kFloat &&
           autocast_type(at::kCPU, at::kFloat) == at::kFloat && weight.size(0) % kFrameColumns == 0 &&
           (stride == 1 || (how.dilation == 1 && weight.size(2) % stride == 0 && time % stride == 0));
  }

  static FrameWindows windows(const at::Tensor& padded, int64_t taps, const Windowing& how) {
    const int64_t batch = padded.size(0), time = padded.size(1), in = padded.size(2);
    const int64_t rows = (time - how.dilation * (taps - 1) - 1) / how.stride + 1;
    return {batch, rows, time * in, how.stride * in, taps, how.dilation * in, in};
  }

  // padded [batch, time, in] -> [batch, rows, out]
  static at::Tensor product(const at::Tensor& padded, const at::Tensor& packed, int64_t out, int64_t taps,
                            const at::Tensor& bias, const Windowing& how, Activation activation) {
    const FrameWindows w = windows(padded, taps, how);
    at::Tensor y = at::empty({w.batch, w.rows, out}, padded.options());
    frame_product(w, padded.data_ptr<float>(), packed, bias.contiguous().data_ptr<float>(), activation, y);
    return y;
  }

  static at::Tensor forward(AutogradContext* context, const at::Tensor& frames, const at::Tensor& weight,
                            const at::Tensor& bias, const Windowing& how, Activation activation) {
    const at::Tensor padded =
        how.padding > 0 ? with_left_padding(frames, how.padding, how.reflect) : frames.contiguous();
    const at::Tensor y =
        product(padded, pack_weight(weight), weight.size(0), weight.size(2), bias, how, activation);
    context->save_for_backward(
        {frames, padded, weight, bias, activation == Activation::elu ? y : at::Tensor()});
    context->saved_data["how"] = std::vector<int64_t>{how.stride, how.dilation, how.padding, how.reflect};
    return y;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &padded = saved[1], &weight = saved[2], &bias = saved[3], &y = saved[4];
    const auto numbers = context->saved_data["how"].toIntVector();
    const Windowing how{numbers[0], numbers[1], numbers[2], numbers[3] != 0};
    if (at::GradMode::is_enabled())  // the gradient will itself be differentiated
      return library_gradients(context, gradients[0], saved[0], weight, bias, how,
                               y.defined() ? Activation::elu : Activation::none);
    variable_list result(5);
    at::Tensor gradient = gradients[0];
    if (y.defined()) gradient = at::elu_backward(gradient, 1, 1, 1, /*is_result=*/true, y);
    gradient = gradient.contiguous();
    if (context->needs_input_grad(1) || context->needs_input_grad(2))
      std::tie(result[1], result[2]) = frame_product_weight_gradient(windows(padded, weight.size(2), how),
                                                                     padded.data_ptr<float>(), gradient);
    if (context->needs_input_grad(0)) {
      const at::Tensor wide = input_gradient(gradient, padded, weight, bias, how);
      result[0] = how.padding > 0 ? without_left_padding(wide, how.padding, how.reflect) : wide;
    }
    return result;
  }

  static variable_list library_gradients(AutogradContext* context, const at::Tensor& gradient,
                                         const at::Tensor& frames, const at::Tensor& weight,
                                         const at::Tensor& bias, const Windowing& how,
                                         Activation activation) {
    const variable_list all{frames, weight, bias};
    variable_list wanted, result(5);
    for (size_t i = 0; i < all.size(); ++i)
      if (context->needs_input_grad(i)) wanted.push_back(all[i]);
    const auto found = torch::autograd::grad({library_convolve(frames, weight, bias, how, activation)},
                                             wanted, {gradient}, true, true);
    for (size_t i = 0, next = 0; i < all.size(); ++i)
      if (context->needs_input_grad(i)) result[i] = found[next++];
    return result;
  }

  // The gradient of the padded frames: a convolution of the gradient with the taps in reverse.
  static at::Tensor input_gradient(const at::Tensor& gradient, const at::Tensor& padded,
                                   const at::Tensor& weight, const at::Tensor& bias, const Windowing& how) {
    const int64_t batch = gradient.size(0), out = gradient.size(2), columns = how.stride * weight.size(1);
    if (columns % kFrameColumns != 0) {
      const at::AutoGradMode with_grad(true);
      const at::Tensor leaf = padded.detach().requires_grad_();
      const at::Tensor y = library_convolve(leaf, weight.detach(), bias.detach(), how.stride, how.dilation);
      return torch::autograd::grad({y}, {leaf}, {gradient})[0];
    }
    const int64_t taps = weight.size(2) / how.stride, reach = how.dilation * (taps - 1);
    const at::Tensor around = reach > 0 ? at::constant_pad_nd(gradient, {0, 0, reach, reach}) : gradient;
    const FrameWindows w{batch, around.size(1) - reach, around.size(1) * out, out, taps, how.dilation * out,
                         out};
    at::Tensor result = at::empty({batch, w.rows, columns}, gradient.options());
    frame_product(w, around.data_ptr<float>(), pack_weight_for_input(weight, how.stride), nullptr,
                  Activation::none, result);
    return result.view({batch, padded.size(1), weight.size(1)});
  }
};

at::Tensor convolve(const at::Tensor& frames, const at::Tensor& weight, const at::Tensor& bias,
                    const Windowing& how, Activation activation) {
  require(!how.reflect || frames.size(1) > how.padding,
          "[convolution] reflect padding of {} frames needs more than {} frames, got {}; use longer audio or "
          "pad_mode = \"constant\"",
          how.padding, how.padding, frames.size(1));
  if (FrameConv::can_run(frames, weight, how)) return FrameConv::apply(frames, weight, bias, how, activation);
  return library_convolve(frames, weight, bias, how, activation);
}

// The same for a chunk that has its past before it: no padding, and weights are packed once for a whole
// sound. make_weight() gives them, [out, in, taps].
template <class MakeWeight>
at::Tensor convolve_chunk(const at::Tensor& frames, const MakeWeight& make_weight, const at::Tensor& bias,
                          const Windowing& how, Activation activation, at::Tensor& packed) {
  const int64_t in = frames.size(2), out = bias.size(0);
  if (!packed.defined()) {
    const at::Tensor weight = make_weight();
    if (at::GradMode::is_enabled() || !FrameConv::can_run(frames, weight, how))
      return convolve(frames, weight, bias, how, activation);
    packed = pack_weight(weight);
  }
  return FrameConv::product(frames.contiguous(), packed, out, packed.numel() / (in * out), bias, how,
                            activation);
}

// Weights that keep a signal's level. LibTorch's own choice makes it 1.7 times smaller a layer: a deep codec
// would start out as a constant, its frames all alike, and take hundreds of steps to say anything.
at::Tensor level_keeping_weight(at::IntArrayRef shape, double inputs) {
  const double bound = std::sqrt(3 / inputs);
  return at::empty(shape).uniform_(-bound, bound);
}

// What stands before the first frame where a sound is a circle.
at::Tensor last_frames(const at::Tensor& frames, int64_t count) {
  require(frames.size(1) >= count,
          "[convolution] circular padding of {} frames needs at least {} frames, got {}; use longer audio or "
          "pad_mode = \"constant\"",
          count, count, frames.size(1));
  return frames.narrow(1, frames.size(1) - count, count);
}

at::Tensor to_frames(const at::Tensor& x) {
  return time_major(x).transpose(1, 2);
}  // [batch, time, channels]

}  // namespace

at::Tensor time_major(const at::Tensor& x) {
  return x.transpose(1, 2).contiguous().transpose(1, 2);
}

CausalConv1dImpl::CausalConv1dImpl(int64_t in, int64_t out, int64_t kernel, std::string pad_mode,
                                   int64_t stride, int64_t dilation)
    : pad_mode_(std::move(pad_mode)),
      stride_(stride),
      dilation_(dilation),
      padding_(dilation * (kernel - 1) + 1 - stride) {
  require(pad_mode_ == "reflect" || pad_mode_ == "constant" || pad_mode_ == "replicate" ||
              pad_mode_ == "circular",
          "[convolution] expected pad_mode reflect, constant, replicate or circular, got {}", pad_mode_);
  weight =
      register_parameter("weight", level_keeping_weight({out, in, kernel}, static_cast<double>(in * kernel)));
  bias = register_parameter("bias", at::zeros({out}));
}

at::Tensor CausalConv1dImpl::forward(const at::Tensor& x, Activation activation, FrameHistory* history) {
  Windowing how{stride_, dilation_, padding_, padding_ > 0 && pad_mode_ == "reflect"};
  at::Tensor frames = to_frames(x);
  const bool begins = history == nullptr || !history->of(*this).defined();
  if (begins && padding_ > 0 && (pad_mode_ == "replicate" || pad_mode_ == "circular")) {
    frames = at::cat({pad_mode_ == "replicate" ? frames.narrow(1, 0, 1).expand({-1, padding_, -1})
                                               : last_frames(frames, padding_),
                      frames},
                     1);
    how.padding = 0;
  }
  if (history == nullptr) return convolve(frames, weight, bias, how, activation).transpose(1, 2);
  if (padding_ > 0) {
    at::Tensor& before = history->of(*this);  // [batch, padding, in]
    if (!begins)
      frames = at::cat({before, frames}, 1);
    else if (how.padding > 0)
      frames = with_left_padding(frames, padding_, how.reflect);
    before = frames.narrow(1, frames.size(1) - padding_, padding_).clone();
    how = {stride_, dilation_, 0, false};
  }
  return convolve_chunk(
             frames, [this] { return weight; }, bias, how, activation, history->packed_weight_of(*this))
      .transpose(1, 2);
}

CausalConvTranspose1dImpl::CausalConvTranspose1dImpl(int64_t in, int64_t out, int64_t kernel, int64_t stride)
    : stride_(stride), taps_((kernel + stride - 1) / stride) {
  const double inputs = static_cast<double>(in * kernel) / static_cast<double>(stride);
  weight = register_parameter("weight", level_keeping_weight({in, out, kernel}, inputs));
  bias = register_parameter("bias", at::zeros({out}));
}

at::Tensor CausalConvTranspose1dImpl::forward(const at::Tensor& x, FrameHistory* history) {
  const int64_t in = weight.size(0), out = weight.size(1), batch = x.size(0), time = x.size(2);
  // Output frame t * stride + r sees input frames t, t - 1, ... through taps r, r + stride, ...
  const auto phases = [&] {
    return at::constant_pad_nd(weight, {0, taps_ * stride_ - weight.size(2)})
        .view({in, out, taps_, stride_})
        .flip(2)
        .permute({3, 1, 0, 2})  // [stride, out, in, taps], oldest tap first
        .reshape({stride_ * out, in, taps_});
  };
  const at::Tensor biases = bias.repeat({stride_});
  Windowing how{1, 1, taps_ - 1, false};
  at::Tensor frames = to_frames(x), y;
  if (history == nullptr) {
    y = convolve(frames, phases(), biases, how, Activation::none);
  } else {
    if (taps_ > 1) {
      at::Tensor& before = history->of(*this);  // [batch, taps - 1, in]
      frames = before.defined() ? at::cat({before, frames}, 1) : with_left_padding(frames, taps_ - 1, false);
      before = frames.narrow(1, frames.size(1) - (taps_ - 1), taps_ - 1).clone();
      how.padding = 0;
    }
    y = convolve_chunk(frames, phases, biases, how, Activation::none, history->packed_weight_of(*this));
  }
  return y.reshape({batch, time * stride_, out}).transpose(1, 2);
}

}  // namespace melete

#include "kernels/complex_conv.h"

#include <torch/autograd.h>

#include "core/autocast.h"
#include "kernels/minimal_filter.h"
#include "kernels/one_channel_conv.h"

namespace melete {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr std::array<int64_t, 2> kOnes{1, 1}, kZeros{0, 0};

at::Tensor channels_last(const at::Tensor& x) {
  return x.contiguous(at::MemoryFormat::ChannelsLast);
}

struct Geometry : ConvGeometry {
  at::Tensor forward(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias = {}) const {
    return at::conv2d(x, channels_last(weight), bias, at::IntArrayRef(stride), at::IntArrayRef(padding),
                      at::IntArrayRef(kOnes));
  }
  // Gradient of the input (`like` has its shape), or of the weight.
  at::Tensor input_gradient(const at::Tensor& gradient, const at::Tensor& like,
                            const at::Tensor& weight) const {
    return std::get<0>(backward(gradient, like, channels_last(weight), {true, false, false}));
  }
  at::Tensor weight_gradient(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& like) const {
    return std::get<1>(backward(gradient, x, like, {false, true, false}));
  }

 private:
  std::tuple<at::Tensor, at::Tensor, at::Tensor> backward(const at::Tensor& gradient, const at::Tensor& x,
                                                          const at::Tensor& weight,
                                                          std::array<bool, 3> wanted) const {
    return at::convolution_backward(gradient, x, weight, c10::nullopt, at::IntArrayRef(stride),
                                    at::IntArrayRef(padding), at::IntArrayRef(kOnes), false,
                                    at::IntArrayRef(kZeros), 1, wanted);
  }
};

struct ComplexConv : torch::autograd::Function<ComplexConv> {
  // weight [out, in, height, width, 2], bias [out, 2], all of one type
  static variable_list forward(AutogradContext* context, const at::Tensor& re, const at::Tensor& im,
                               const at::Tensor& weight, const at::Tensor& bias, int64_t stride_height,
                               int64_t stride_width, int64_t padding_height, int64_t padding_width) {
    context->save_for_backward({re, im, weight, bias});
    context->saved_data["geometry"] =
        std::vector<int64_t>{stride_height, stride_width, padding_height, padding_width};
    const Geometry geometry{{{stride_height, stride_width}, {padding_height, padding_width}}};
    if (minimal_filter_fits(weight, geometry)) {
      const ComplexPair y = minimal_filter_conv2d({re, im}, weight, bias, geometry);
      return {y.re, y.im};
    }
    if (one_channel_fits(weight, geometry)) {
      const ComplexPair y = one_channel_conv2d({re, im}, weight, bias, geometry);
      return {y.re, y.im};
    }
    const at::Tensor weight_re = weight.select(-1, 0), weight_im = weight.select(-1, 1);
    const at::Tensor bias_re = bias.select(-1, 0), bias_im = bias.select(-1, 1);

    const at::Tensor sum = geometry.forward(re + im, weight_re, bias_re);
    at::Tensor out_im = geometry.forward(re, weight_im - weight_re, bias_im - bias_re);
    out_im.add_(sum);
    at::Tensor out_re = geometry.forward(im, weight_re + weight_im);
    at::sub_out(out_re, sum, out_re);
    return {out_re, out_im};
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &re = saved[0], &im = saved[1], &weight = saved[2], &bias = saved[3];
    const auto numbers = context->saved_data["geometry"].toIntVector();
    const Geometry geometry{{{numbers[0], numbers[1]}, {numbers[2], numbers[3]}}};
    variable_list result(8);

    if (at::GradMode::is_enabled()) {  // the gradient will itself be differentiated
      const ComplexPair y =
          complex_conv2d_reference({re, im}, weight, bias, geometry.stride, geometry.padding);
      variable_list inputs;
      for (const at::Tensor& input : saved)
        if (input.requires_grad()) inputs.push_back(input);
      const auto found = torch::autograd::grad({y.re, y.im}, inputs, gradients, true, true, true);
      for (size_t i = 0, next = 0; i < 4; ++i)
        if (saved[i].requires_grad()) result[i] = found[next++];
      return result;
    }

    const at::Tensor g_re = channels_last(gradients[0]), g_im = channels_last(gradients[1]);
    const bool for_input = context->needs_input_grad(0) || context->needs_input_grad(1),
               for_weight = context->needs_input_grad(2);
    if (one_channel_fits(weight, geometry)) {
      if (for_input) {
        const ComplexPair x =
            one_channel_input_gradient({g_re, g_im}, weight, {re.size(2), re.size(3)}, geometry);
        result[0] = x.re;
        result[1] = x.im;
      }
      if (for_weight || context->needs_input_grad(3))
        std::tie(result[2], result[3]) =
            one_channel_weight_gradient({g_re, g_im}, {re, im}, weight, geometry);
      return result;
    }
    if (context->needs_input_grad(3)) result[3] = at::stack({g_re.sum({0, 2, 3}), g_im.sum({0, 2, 3})}, -1);
    if (minimal_filter_fits(weight, geometry)) {
      if (for_input) {
        const ComplexPair x =
            minimal_filter_input_gradient({g_re, g_im}, weight, {re.size(2), re.size(3)}, geometry);
        result[0] = x.re;
        result[1] = x.im;
      }
      if (for_weight) result[2] = minimal_filter_weight_gradient({g_re, g_im}, {re, im}, weight, geometry);
      return result;
    }
    const at::Tensor weight_re = weight.select(-1, 0), weight_im = weight.select(-1, 1);
    const at::Tensor g_sum = g_re + g_im;
    if (for_input) {
      // Multiplication by the conjugate of the weight.
      const at::Tensor sum = geometry.input_gradient(g_sum, re, weight_re);
      at::Tensor x_im = geometry.input_gradient(g_re, re, -(weight_im + weight_re));
      x_im.add_(sum);
      at::Tensor x_re = geometry.input_gradient(g_im, re, weight_re - weight_im);
      at::sub_out(x_re, sum, x_re);
      result[0] = x_re;
      result[1] = x_im;
    }
    if (for_weight) {
      // Products of the gradient with the conjugate of the input.
      const at::Tensor like = channels_last(weight_re);
      const at::Tensor first = geometry.weight_gradient(g_re, re - im, like);
      const at::Tensor real = first + geometry.weight_gradient(g_sum, im, like);
      const at::Tensor imaginary = first + geometry.weight_gradient(g_im - g_re, re, like);
      result[2] = at::stack({real, imaginary}, -1);
    }
    return result;
  }
};

}  // namespace

ComplexPair complex_conv2d_reference(const ComplexPair& x, const at::Tensor& weight, const at::Tensor& bias,
                                     std::array<int64_t, 2> stride, std::array<int64_t, 2> padding) {
  const Geometry geometry{{stride, padding}};
  const at::Tensor weight_re = weight.select(-1, 0), weight_im = weight.select(-1, 1);
  return {geometry.forward(x.re, weight_re, bias.select(-1, 0)) - geometry.forward(x.im, weight_im),
          geometry.forward(x.re, weight_im, bias.select(-1, 1)) + geometry.forward(x.im, weight_re)};
}

ComplexPair complex_conv2d(const ComplexPair& x, const at::Tensor& weight, const at::Tensor& bias,
                           std::array<int64_t, 2> stride, std::array<int64_t, 2> padding) {
  // Cast and laid out here rather than inside: what is saved for the backward pass must be part of the graph,
  // and autocast is off by the time that pass runs.
  const at::ScalarType type = autocast_type(weight.device().type(), weight.scalar_type());
  const auto result =
      ComplexConv::apply(channels_last(x.re.to(type)), channels_last(x.im.to(type)), weight.to(type),
                         bias.to(type), stride[0], stride[1], padding[0], padding[1]);
  return {result[0], result[1]};
}

}  // namespace melete

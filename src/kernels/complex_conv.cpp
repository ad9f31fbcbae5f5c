#include "kernels/complex_conv.h"

#include <torch/autograd.h>

#include "core/autocast.h"
#include "core/base/error.h"
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

// What the three passes have in common: one of two kernels of ours where it fits, or else three convolutions
// of LibTorch (Gauss). All tensors are of one type and channels-last; weight [out, in, height, width, 2],
// bias [out, 2].
ComplexPair convolve(const ComplexPair& x, const at::Tensor& weight, const at::Tensor& bias,
                     const Geometry& geometry) {
  if (minimal_filter_fits(weight, geometry)) return minimal_filter_conv2d(x, weight, bias, geometry);
  if (one_channel_fits(weight, geometry)) return one_channel_conv2d(x, weight, bias, geometry);
  const at::Tensor weight_re = weight.select(-1, 0), weight_im = weight.select(-1, 1);
  const at::Tensor bias_re = bias.select(-1, 0), bias_im = bias.select(-1, 1);
  const at::Tensor sum = geometry.forward(x.re + x.im, weight_re, bias_re);
  at::Tensor im = geometry.forward(x.re, weight_im - weight_re, bias_im - bias_re);
  im.add_(sum);
  at::Tensor re = geometry.forward(x.im, weight_re + weight_im);
  at::sub_out(re, sum, re);
  return {re, im};
}

// like: a part of the input
ComplexPair input_gradient(const ComplexPair& g, const at::Tensor& weight, const at::Tensor& like,
                           const Geometry& geometry) {
  const std::array<int64_t, 2> size{like.size(2), like.size(3)};
  if (minimal_filter_fits(weight, geometry)) return minimal_filter_input_gradient(g, weight, size, geometry);
  if (one_channel_fits(weight, geometry)) return one_channel_input_gradient(g, weight, size, geometry);
  // Multiplication by the conjugate of the weight.
  const at::Tensor weight_re = weight.select(-1, 0), weight_im = weight.select(-1, 1);
  const at::Tensor sum = geometry.input_gradient(g.re + g.im, like, weight_re);
  at::Tensor im = geometry.input_gradient(g.re, like, -(weight_im + weight_re));
  im.add_(sum);
  at::Tensor re = geometry.input_gradient(g.im, like, weight_re - weight_im);
  at::sub_out(re, sum, re);
  return {re, im};
}

at::Tensor bias_gradient(const ComplexPair& g) {
  return at::stack({g.re.sum({0, 2, 3}), g.im.sum({0, 2, 3})}, -1);
}

// Of weight and, where wanted, of bias.
std::pair<at::Tensor, at::Tensor> weight_gradient(const ComplexPair& g, const ComplexPair& x,
                                                  const at::Tensor& weight, bool of_bias,
                                                  const Geometry& geometry) {
  if (one_channel_fits(weight, geometry)) return one_channel_weight_gradient(g, x, weight, geometry);
  const at::Tensor bias = of_bias ? bias_gradient(g) : at::Tensor();
  if (minimal_filter_fits(weight, geometry))
    return {minimal_filter_weight_gradient(g, x, weight, geometry), bias};
  // Products of the gradient with the conjugate of the input.
  const at::Tensor like = channels_last(weight.select(-1, 0));
  const at::Tensor first = geometry.weight_gradient(g.re, x.re - x.im, like);
  const at::Tensor re = first + geometry.weight_gradient(g.re + g.im, x.im, like);
  const at::Tensor im = first + geometry.weight_gradient(g.im - g.re, x.re, like);
  return {at::stack({re, im}, -1), bias};
}

void save(AutogradContext* context, const Geometry& g) {
  context->saved_data["geometry"] =
      std::vector<int64_t>{g.stride[0], g.stride[1], g.padding[0], g.padding[1]};
}
Geometry saved_geometry(AutogradContext* context) {
  const auto numbers = context->saved_data["geometry"].toIntVector();
  return {{{numbers[0], numbers[1]}, {numbers[2], numbers[3]}}};
}

// The gradient of the input as a function of the output's gradient and the weight, for gradients of
// gradients: the adjoint of a convolution has the convolution as its own.
struct ComplexConvAdjoint : torch::autograd::Function<ComplexConvAdjoint> {
  static variable_list forward(AutogradContext* context, const at::Tensor& re, const at::Tensor& im,
                               const at::Tensor& weight, const at::Tensor& like, const Geometry& geometry) {
    context->save_for_backward({re, im, weight});
    save(context, geometry);
    const ComplexPair x = input_gradient({re, im}, weight, like, geometry);
    return {x.re, x.im};
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    require(!at::GradMode::is_enabled(), "[complex convolution] expected no third derivative; there is none");
    const auto saved = context->get_saved_variables();
    const at::Tensor &re = saved[0], &im = saved[1], &weight = saved[2];
    const Geometry geometry = saved_geometry(context);
    const ComplexPair h{channels_last(gradients[0]), channels_last(gradients[1])};
    variable_list result(5);
    if (context->needs_input_grad(0) || context->needs_input_grad(1)) {
      const ComplexPair g = convolve(h, weight, at::zeros({weight.size(0), 2}, weight.options()), geometry);
      result[0] = g.re;
      result[1] = g.im;
    }
    if (context->needs_input_grad(2)) result[2] = weight_gradient({re, im}, h, weight, false, geometry).first;
    return result;
  }
};

struct ComplexConv : torch::autograd::Function<ComplexConv> {
  static variable_list forward(AutogradContext* context, const at::Tensor& re, const at::Tensor& im,
                               const at::Tensor& weight, const at::Tensor& bias, const Geometry& geometry) {
    context->save_for_backward({re, im, weight, bias});
    save(context, geometry);
    const ComplexPair y = convolve({re, im}, weight, bias, geometry);
    return {y.re, y.im};
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &re = saved[0], &im = saved[1], &weight = saved[2];
    const Geometry geometry = saved_geometry(context);
    const bool for_input = context->needs_input_grad(0) || context->needs_input_grad(1),
               for_weight = context->needs_input_grad(2), for_bias = context->needs_input_grad(3);
    const ComplexPair g{channels_last(gradients[0]), channels_last(gradients[1])};
    if (at::GradMode::is_enabled() && (for_weight || for_bias)) return library_gradients(context, saved, g);
    variable_list result(5);
    if (for_input && at::GradMode::is_enabled()) {  // the gradient will itself be differentiated
      const auto x = ComplexConvAdjoint::apply(g.re, g.im, weight, re, geometry);
      result[0] = x[0];
      result[1] = x[1];
    } else if (for_input) {
      const ComplexPair x = input_gradient(g, weight, re, geometry);
      result[0] = x.re;
      result[1] = x.im;
    }
    if (for_weight)
      std::tie(result[2], result[3]) = weight_gradient(g, {re, im}, weight, for_bias, geometry);
    else if (for_bias)
      result[3] = bias_gradient(g);
    return result;
  }

  // Differentiable in everything.
  static variable_list library_gradients(AutogradContext* context, const variable_list& saved,
                                         const ComplexPair& g) {
    const Geometry geometry = saved_geometry(context);
    const ComplexPair y =
        complex_conv2d_reference({saved[0], saved[1]}, saved[2], saved[3], geometry.stride, geometry.padding);
    variable_list inputs, result(5);
    for (const at::Tensor& input : saved)
      if (input.requires_grad()) inputs.push_back(input);
    const auto found = torch::autograd::grad({y.re, y.im}, inputs, {g.re, g.im}, true, true, true);
    for (size_t i = 0, next = 0; i < 4; ++i)
      if (saved[i].requires_grad()) result[i] = found[next++];
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
  // and autocast is off by the time that pass runs. One channel is computed in float32 even so: lower
  // precision would have no kernel and be slower.
  const Geometry geometry{{stride, padding}};
  const at::ScalarType type = autocast_type(weight.device().type(), weight.scalar_type()),
                       inner = one_channel_fits(weight, geometry) ? at::kFloat : type;
  const auto result = ComplexConv::apply(channels_last(x.re.to(inner)), channels_last(x.im.to(inner)),
                                         weight.to(inner), bias.to(inner), geometry);
  return {result[0].to(type), result[1].to(type)};
}

}  // namespace melete

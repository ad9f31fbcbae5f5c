#include "nn/norm.h"

#include <torch/autograd.h>

#include <cmath>

#include "core/autocast.h"
#include "core/base/error.h"
#include "kernels/rms_norm.h"
#include "nn/activation.h"

namespace melete {

namespace {

struct LayerNorm : torch::autograd::Function<LayerNorm> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const at::Tensor& weight, const c10::optional<at::Tensor>& bias,
                            NormInput input) {
    const LayerNormOutput result = layer_norm_forward(x, input, weight, bias.value_or(at::Tensor()));
    context->save_for_backward({x, weight, result.mean, result.inverse});
    context->saved_data["gated"] = input == NormInput::gated;
    context->saved_data["shift"] = bias.has_value();
    return result.values;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    require(!at::GradMode::is_enabled(), "[norm] layer normalisation has no second derivative here");
    const auto saved = context->get_saved_variables();
    const NormInput input = context->saved_data["gated"].toBool() ? NormInput::gated : NormInput::plain;
    const auto result = layer_norm_backward(gradients[0], saved[0], input, saved[1], saved[2], saved[3]);
    return {result.x, result.weight, context->saved_data["shift"].toBool() ? result.bias : at::Tensor(), {}};
  }
};

struct RmsRows : torch::autograd::Function<RmsRows> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const at::Tensor& gain, const c10::optional<at::Tensor>& shift, GainOf gain_of) {
    const RmsNormOutput result = rms_norm_forward({x, gain, shift.value_or(at::Tensor()), gain_of});
    context->save_for_backward({x, gain, result.inverse});
    context->saved_data["of_head"] = gain_of == GainOf::head;
    context->saved_data["shift"] = shift.has_value();
    return result.values;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    require(!at::GradMode::is_enabled(), "[norm] RMS normalisation has no second derivative here");
    const auto saved = context->get_saved_variables();
    auto& data = context->saved_data;
    const auto result =
        rms_norm_backward({saved[0], saved[1], {}, data["of_head"].toBool() ? GainOf::head : GainOf::item},
                          saved[2], gradients[0]);
    return {result.x, result.gain, data["shift"].toBool() ? result.shift : at::Tensor(), {}};
  }
};

// x [..., dim]; gain and shift (or undefined) [gains, dim], see GainOf
at::Tensor rms_rows(const at::Tensor& x, const at::Tensor& gain, const at::Tensor& shift, GainOf gain_of) {
  const at::Tensor wide = in_float(x);
  if (has_rms_norm(wide) && has_rms_norm(gain))
    return RmsRows::apply(wide, gain, shift.defined() ? c10::optional<at::Tensor>(shift) : c10::nullopt,
                          gain_of);
  const at::Tensor length =
      at::linalg_vector_norm(wide, 2, at::IntArrayRef{-1}, true).clamp_min(kShortestRow);
  std::vector<int64_t> shape(static_cast<size_t>(x.dim()), 1);  // of what broadcasts to x
  shape.back() = x.size(-1);
  if (gain.size(0) > 1) shape[gain_of == GainOf::head ? shape.size() - 2 : 0] = gain.size(0);
  const at::Tensor scaled = wide * (std::sqrt(static_cast<double>(x.size(-1))) / length) * gain.view(shape);
  return shift.defined() ? scaled + shift.view(shape) : scaled;
}

}  // namespace

NormImpl::NormImpl(int64_t dim, bool shift) {
  weight = register_parameter("weight", at::ones({dim}));
  if (shift) bias = register_parameter("bias", at::zeros({dim}));
}

at::Tensor NormImpl::forward(const at::Tensor& given, NormInput input) {
  const at::Tensor x = in_float(given);
  if (has_layer_norm(x)) {
    const auto shift = bias.defined() ? c10::optional<at::Tensor>(bias) : c10::nullopt;
    return LayerNorm::apply(x, weight, shift, input);
  }
  return at::layer_norm(input == NormInput::gated ? gated_gelu(x, GateOrder::value_first) : x, weight.sizes(),
                        weight, bias, kNormEpsilon);
}

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight) {
  return rms_rows(x, weight.dim() == 1 ? weight.unsqueeze(0) : weight, {}, GainOf::head);
}

RmsNormImpl::RmsNormImpl(int64_t dim) {
  weight = register_parameter("weight", at::ones({dim}));
}

at::Tensor RmsNormImpl::forward(const at::Tensor& x) {
  return rms_norm(x, weight);
}

AdaptiveRmsNormImpl::AdaptiveRmsNormImpl(int64_t dim, int64_t condition_dim) {
  scale = register_module("scale", torch::nn::Linear(condition_dim, dim));
  shift = register_module("shift", torch::nn::Linear(condition_dim, dim));
  const at::NoGradGuard no_grad;
  for (at::Tensor& parameter : parameters()) parameter.zero_();
  scale->bias.fill_(1);
}

at::Tensor AdaptiveRmsNormImpl::forward(const at::Tensor& x, const at::Tensor& condition) {
  return rms_rows(x, scale(condition), shift(condition), GainOf::item);
}

}  // namespace melete

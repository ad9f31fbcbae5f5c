#include "nn/norm.h"

#include <torch/autograd.h>

#include <cmath>

#include "core/autocast.h"
#include "core/base/error.h"
#include "nn/activation.h"

namespace melete {

namespace {

constexpr double kShortest = 1e-12;  // a shorter row is divided by this

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

// x / |x| * sqrt(dim), in float32 at least
at::Tensor to_unit_power(const at::Tensor& x) {
  const at::Tensor wide = x.to(at::promote_types(x.scalar_type(), at::kFloat));
  const at::Tensor length = at::linalg_vector_norm(wide, 2, at::IntArrayRef{-1}, true);
  return wide / length.clamp_min(kShortest) * std::sqrt(static_cast<double>(x.size(-1)));
}

}  // namespace

NormImpl::NormImpl(int64_t dim, bool shift) {
  weight = register_parameter("weight", at::ones({dim}));
  if (shift) bias = register_parameter("bias", at::zeros({dim}));
}

at::Tensor NormImpl::forward(const at::Tensor& x, NormInput input) {
  if (has_layer_norm(x) && autocast_type(at::kCPU, at::kFloat) == at::kFloat) {
    const auto shift = bias.defined() ? c10::optional<at::Tensor>(bias) : c10::nullopt;
    return LayerNorm::apply(x, weight, shift, input);
  }
  return at::layer_norm(input == NormInput::gated ? gated_gelu(x, GateOrder::value_first) : x, weight.sizes(),
                        weight, bias, kNormEpsilon);
}

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight) {
  return to_unit_power(x) * weight;
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
  // [batch, dim] -> [batch, 1, ..., dim]
  const auto over_rows = [&](const at::Tensor& t) {
    std::vector<int64_t> shape(static_cast<size_t>(x.dim()), 1);
    shape.front() = t.size(0);
    shape.back() = t.size(1);
    return t.view(shape);
  };
  return to_unit_power(x) * over_rows(scale(condition)) + over_rows(shift(condition));
}

}  // namespace melete

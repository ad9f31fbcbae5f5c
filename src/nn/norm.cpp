#include "nn/norm.h"

#include <torch/autograd.h>

#include "core/autocast.h"
#include "core/base/error.h"
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
  return at::layer_norm(input == NormInput::gated ? gated_gelu(x) : x, weight.sizes(), weight, bias,
                        kNormEpsilon);
}

}  // namespace melete

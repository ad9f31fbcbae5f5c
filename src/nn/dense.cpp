#include "nn/dense.h"

#include <torch/autograd.h>

#include "core/autocast.h"
#include "kernels/matrix_product.h"

namespace melete {

namespace {

at::Tensor plain_rows(const at::Tensor& x) {
  return x.reshape({-1, x.size(-1)});
}

struct Dense : torch::autograd::Function<Dense> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const at::Tensor& weight, const c10::optional<at::Tensor>& bias) {
    // Kept only for a gradient that is wanted.
    const bool of_x = x.requires_grad(), of_weight = weight.requires_grad();
    context->save_for_backward({of_weight ? x : at::Tensor(), of_x ? weight : at::Tensor()});
    context->saved_data["of_bias"] = bias.has_value() && bias->requires_grad();
    return rows_by_weight(x, weight, bias.value_or(at::Tensor()));
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1];
    const bool of_bias = context->saved_data["of_bias"].toBool();
    const at::Tensor& above = gradients[0];
    const bool again = at::GradMode::is_enabled();  // the gradient will be differentiated itself
    at::Tensor to_x, to_weight;
    if (weight.defined()) to_x = again ? at::matmul(above, weight) : rows_gradient(above, weight);
    if (x.defined())
      to_weight = again ? at::mm(plain_rows(above).t(), plain_rows(x)) : weight_gradient(above, x);
    return {to_x, to_weight, of_bias ? plain_rows(above).sum(0) : at::Tensor()};
  }
};

}  // namespace

at::Tensor dense(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  const bool full = autocast_type(x.device().type(), at::kFloat) == at::kFloat;
  if (!full || !has_matrix_product(x, weight)) return at::linear(x, weight, bias);
  const bool differentiated = at::GradMode::is_enabled() && (x.requires_grad() || weight.requires_grad() ||
                                                             (bias.defined() && bias.requires_grad()));
  if (!differentiated) return rows_by_weight(x, weight, bias);
  return Dense::apply(x, weight, bias.defined() ? c10::optional<at::Tensor>(bias) : c10::nullopt);
}

}  // namespace melete

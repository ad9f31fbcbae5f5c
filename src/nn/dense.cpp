#include "nn/dense.h"

#include <torch/autograd.h>

#include "core/autocast.h"
#include "kernels/bf16_product.h"
#include "kernels/matrix_product.h"

namespace melete {

namespace {

// The quick products of a precision: exact ones, or with factors rounded to bf16.
struct Products {
  decltype(&rows_by_weight) forward;
  decltype(&rows_gradient) to_rows;
  decltype(&weight_gradient) to_weight;
};
constexpr Products kExact{rows_by_weight, rows_gradient, weight_gradient};
constexpr Products kRounded{bf16_rows_by_weight, bf16_rows_gradient, bf16_weight_gradient};

at::Tensor plain_rows(const at::Tensor& x) {
  return x.reshape({-1, x.size(-1)});
}

struct Dense : torch::autograd::Function<Dense> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const at::Tensor& weight, const c10::optional<at::Tensor>& bias, bool round) {
    // Kept only for a gradient that is wanted.
    const bool of_x = x.requires_grad(), of_weight = weight.requires_grad();
    context->save_for_backward({of_weight ? x : at::Tensor(), of_x ? weight : at::Tensor()});
    context->saved_data["of_bias"] = bias.has_value() && bias->requires_grad();
    context->saved_data["round"] = round;
    return (round ? kRounded : kExact).forward(x, weight, bias.value_or(at::Tensor()));
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1];
    const bool of_bias = context->saved_data["of_bias"].toBool();
    const at::Tensor& above = gradients[0];
    const Products& by = context->saved_data["round"].toBool() ? kRounded : kExact;
    const bool again = at::GradMode::is_enabled();  // the gradient will be differentiated itself
    at::Tensor to_x, to_weight;
    if (weight.defined()) to_x = again ? at::matmul(above, weight) : by.to_rows(above, weight);
    if (x.defined())
      to_weight = again ? at::mm(plain_rows(above).t(), plain_rows(x)) : by.to_weight(above, x);
    return {to_x, to_weight, of_bias ? plain_rows(above).sum(0) : at::Tensor(), {}};
  }
};

}  // namespace

at::Tensor dense(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  const auto type = autocast_type(x.device().type(), at::kFloat);
  if (type != at::kFloat && x.device().is_cpu()) {
    // What a convolution left in bf16: everything but the factors of a product is float32 here.
    if (x.scalar_type() == at::kBFloat16) return dense(in_float(x), weight, bias);
    if (!has_bf16_product(x, weight)) return at::linear(x, weight, bias).to(at::kFloat);
  }
  const bool round = type == at::kBFloat16 && has_bf16_product(x, weight);
  const bool exact = type == at::kFloat && has_matrix_product(x, weight);
  if (!round && !exact) return at::linear(x, weight, bias);
  const bool differentiated = at::GradMode::is_enabled() && (x.requires_grad() || weight.requires_grad() ||
                                                             (bias.defined() && bias.requires_grad()));
  if (!differentiated) return (round ? kRounded : kExact).forward(x, weight, bias);
  return Dense::apply(x, weight, bias.defined() ? c10::optional<at::Tensor>(bias) : c10::nullopt, round);
}

}  // namespace melete

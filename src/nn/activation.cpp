#include "nn/activation.h"

#include <torch/autograd.h>

#include "kernels/gated_gelu.h"

namespace melete {

namespace {

struct Gelu : torch::autograd::Function<Gelu> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x) {
    const at::Tensor input = x.contiguous();
    context->save_for_backward({input});
    return at::gelu(input);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    return {at::gelu_backward(gradients[0].contiguous(), context->get_saved_variables()[0])};
  }
};

struct GatedGelu : torch::autograd::Function<GatedGelu> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x) {
    context->save_for_backward({x});
    return gated_gelu_forward(x);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    return {gated_gelu_backward(gradients[0], context->get_saved_variables()[0])};
  }
};

}  // namespace

at::Tensor gelu(const at::Tensor& x) {
  return Gelu::apply(x);
}

at::Tensor gated_gelu(const at::Tensor& x) {
  if (has_gated_gelu(x)) return GatedGelu::apply(x);
  const auto halves = x.chunk(2, -1);
  return halves[0] * melete::gelu(halves[1]);
}

}  // namespace melete

#include "nn/activation.h"

#include <torch/autograd.h>

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
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, GateOrder order) {
    context->save_for_backward({x});
    context->saved_data["gate_first"] = order == GateOrder::gate_first;
    return gated_gelu_forward(x, order);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const GateOrder order =
        context->saved_data["gate_first"].toBool() ? GateOrder::gate_first : GateOrder::value_first;
    return {gated_gelu_backward(gradients[0], context->get_saved_variables()[0], order), {}};
  }
};

}  // namespace

at::Tensor gelu(const at::Tensor& x) {
  return Gelu::apply(x);
}

at::Tensor gated_gelu(const at::Tensor& x, GateOrder order) {
  if (has_gated_gelu(x)) return GatedGelu::apply(x, order);
  const auto halves = x.chunk(2, -1);
  const size_t gate = order == GateOrder::value_first ? 1 : 0;
  return halves[1 - gate] * melete::gelu(halves[gate]);
}

}  // namespace melete

#include "nn/feed_forward.h"

#include <torch/autograd.h>

#include "core/base/error.h"
#include "core/device.h"
#include "kernels/few_rows.h"
#include "nn/activation.h"
#include "nn/dense.h"
#include "nn/draws.h"

namespace melete {

torch::nn::Linear linear(int64_t in, int64_t out, bool bias) {
  return torch::nn::Linear(torch::nn::LinearOptions(in, out).bias(bias));
}

namespace {

// A product with weights that nobody trains: only the gradient of x.
struct FrozenRows : torch::autograd::Function<FrozenRows> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const at::Tensor& weight, const c10::optional<at::Tensor>& bias) {
    context->save_for_backward({weight});
    return RowWeights(weight, WeightStorage::float32).multiply(x, bias.value_or(at::Tensor()));
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    require(!at::GradMode::is_enabled(),
            "[linear] a product with frozen weights has no second derivative here");
    const at::Tensor weight = context->get_saved_variables()[0];
    return {RowWeights(weight, WeightStorage::float32).multiply_back(gradients[0]), {}, {}};
  }
};

}  // namespace

at::Tensor project(const at::Tensor& x, const torch::nn::Linear& layer) {
  if (takes_few_rows_of_frozen(x, layer->weight) && !(layer->bias.defined() && layer->bias.requires_grad()))
    return FrozenRows::apply(x, layer->weight,
                             layer->bias.defined() ? c10::optional<at::Tensor>(layer->bias) : c10::nullopt);
  if (!takes_few_rows(x)) return dense(x, layer->weight, layer->bias);
  return RowWeights(layer->weight, WeightStorage::float32).multiply(x, layer->bias);
}

at::Tensor dropout(const at::Tensor& x, double rate, Draws* draws) {
  if (rate == 0 || draws == nullptr) return x;
  const at::Tensor keep = (draws->uniform("dropout", x.sizes()) >= rate).to(x.scalar_type());
  return x * sent_to(x.device(), keep).mul_(1 / (1 - rate));
}

FeedForwardImpl::FeedForwardImpl(const FeedForwardConfig& config) : dropout_(config.dropout) {
  const auto inner = static_cast<int64_t>(static_cast<double>(config.dim) * 2 * config.multiplier / 3);
  norm = register_module("norm", Norm(config.dim, config.shift));
  input = register_module("input", linear(config.dim, 2 * inner, false));
  if (config.inner_norm) inner_norm = register_module("inner_norm", Norm(inner, config.shift));
  output = register_module("output", linear(inner, config.dim, false));
}

at::Tensor FeedForwardImpl::forward(const at::Tensor& x, Draws* draws) {
  at::Tensor hidden = project(norm(x), input);
  hidden = inner_norm.is_empty() ? gated_gelu(hidden, GateOrder::value_first)
                                 : inner_norm->forward(hidden, NormInput::gated);
  return project(dropout(hidden, dropout_, draws), output);
}

}  // namespace melete

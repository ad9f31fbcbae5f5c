#include "nn/feed_forward.h"

#include "kernels/few_rows.h"
#include "nn/activation.h"
#include "nn/draws.h"

namespace melete {

torch::nn::Linear linear(int64_t in, int64_t out, bool bias) {
  return torch::nn::Linear(torch::nn::LinearOptions(in, out).bias(bias));
}

at::Tensor project(const at::Tensor& x, const torch::nn::Linear& layer) {
  if (!takes_few_rows(x)) return at::linear(x, layer->weight, layer->bias);
  return RowWeights(layer->weight, WeightStorage::float32).multiply(x, layer->bias);
}

at::Tensor dropout(const at::Tensor& x, double rate, Draws* draws) {
  if (rate == 0 || draws == nullptr) return x;
  const at::Tensor keep = (draws->uniform("dropout", x.sizes()) >= rate).to(x.options());
  return x * keep.mul_(1 / (1 - rate));
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

#include "nn/position_bias.h"

#include <limits>

#include "nn/feed_forward.h"

namespace melete {

BiasNetworkImpl::BiasNetworkImpl(int64_t inputs, int64_t dim, int64_t heads, int64_t hidden) {
  for (int64_t i = 0; i < hidden; ++i) layers->push_back(linear(i == 0 ? inputs : dim, dim, true));
  layers->push_back(linear(dim, heads, true));
  register_module("layers", layers);
}

at::Tensor BiasNetworkImpl::forward(at::Tensor x) {
  for (size_t i = 0; i < layers->size(); ++i) {
    x = layers->at<torch::nn::LinearImpl>(i).forward(x);
    if (i + 1 < layers->size()) x = at::silu(x);
  }
  return x.to(at::kFloat);
}

at::Tensor bias_by_distance(BiasNetwork& network, int64_t count) {
  const auto device = network->parameters().front().device();
  return network(at::arange(count, at::TensorOptions(at::kFloat).device(device)).unsqueeze(1));
}

at::Tensor causal_bias(const at::Tensor& by_distance, int64_t from, int64_t to) {
  const int64_t rows = to - from;
  const at::Tensor table = by_distance.defined() ? by_distance.narrow(0, 0, to).t() : at::zeros({1, to});
  // Farthest key first, then what lies in the future; each row is a window that starts one place earlier.
  const at::Tensor future =
      table.new_full({table.size(0), rows - 1}, -std::numeric_limits<double>::infinity());
  const at::Tensor line = at::cat({table.flip({1}), future}, 1);
  return line.unfold(1, to, 1).flip({1}).permute({1, 0, 2});
}

}  // namespace melete

#include "nn/frozen.h"

#include <fmt/ranges.h>

#include <cmath>

#include "core/base/error.h"

namespace melete {

at::Tensor random_weight(at::IntArrayRef shape) {
  int64_t inputs = 1;
  for (size_t i = 1; i < shape.size(); ++i) inputs *= shape[i];
  return at::randn(shape) / std::sqrt(static_cast<double>(inputs));
}

at::Device device_of(const torch::nn::Module& module) {
  const std::vector<at::Tensor> weights = module.parameters();
  if (!weights.empty()) return weights.front().device();
  const std::vector<at::Tensor> buffers = module.buffers();
  return buffers.empty() ? at::Device(at::kCPU) : buffers.front().device();
}

void freeze(torch::nn::Module& module) {
  module.eval();
  for (at::Tensor& parameter : module.parameters()) parameter.requires_grad_(false);
}

TensorMap tensors_of(const torch::nn::Module& module) {
  TensorMap result;
  for (const auto& item : module.named_parameters()) result.emplace(item.key(), item.value().detach());
  for (const auto& item : module.named_buffers()) result.emplace(item.key(), item.value());
  return result;
}

void load_tensors(torch::nn::Module& module, const TensorMap& tensors, const std::string& where) {
  const at::NoGradGuard no_grad;
  const TensorMap own = tensors_of(module);
  for (const auto& [name, tensor] : own) {
    const auto found = tensors.find(name);
    require(found != tensors.end(), "[{}] has no `{}`", where, name);
    require(found->second.sizes() == tensor.sizes(), "[{}] `{}` has shape [{}], its configuration says [{}]",
            where, name, fmt::join(found->second.sizes(), ", "), fmt::join(tensor.sizes(), ", "));
    at::Tensor(tensor).copy_(found->second);
  }
  for (const auto& [name, tensor] : tensors)
    require(own.count(name) > 0, "[{}] has `{}`, which this model does not know", where, name);
}

}  // namespace melete

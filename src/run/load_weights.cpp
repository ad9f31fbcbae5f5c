#include "run/load_weights.h"

#include <torch/nn/module.h>

#include <filesystem>

#include "core/base/error.h"

namespace melete {

Weights weights_named(const std::string& name) {
  require(name == "ema" || name == "online", "[weights] expected ema or online, got {}", name);
  return name == "ema" ? Weights::best : Weights::online;
}

std::string weights_name(Weights weights) {
  return weights == Weights::best ? "ema" : weights == Weights::online ? "online" : "untrained";
}

namespace {
thread_local WeightsListener* listeners = nullptr;
}

WeightsListener::WeightsListener(std::function<void(const TakenWeights&)> hear)
    : hear_(std::move(hear)), outer_(listeners) {
  listeners = this;
}

WeightsListener::~WeightsListener() {
  listeners = outer_;
}

void tell_weights(const TakenWeights& taken) {
  for (const WeightsListener* one = listeners; one != nullptr; one = one->outer_) one->hear_(taken);
}

FoundCheckpoint open_checkpoint(const std::string& path, const std::string& where) {
  if (!std::filesystem::is_directory(path)) return {path, load_checkpoint(path)};
  auto found = latest_usable(path, [](const std::string&) {});
  require(found.has_value(), "[{}] {} has no usable checkpoint; give a run folder or a .safetensors file",
          where, path);
  return std::move(*found);
}

FoundCheckpoint open_checkpoint(const std::string& path, const std::string& where, const std::string& task) {
  FoundCheckpoint found = open_checkpoint(path, where);
  const std::string is = found.checkpoint.meta.value("task", "");
  require(is == task, "[{}] expected a `{}` model, but {} is one of `{}`", where, task, found.path, is);
  return found;
}

bool load_weights(torch::nn::Module& module, const std::string& prefix, const FoundCheckpoint& found,
                  Weights weights, const std::string& where) {
  const at::NoGradGuard no_grad;
  const TensorMap& tensors = found.checkpoint.tensors;
  bool averaged = false;
  const auto load = [&](const std::string& name, at::Tensor tensor) {
    const auto average = tensors.find("ema.average." + prefix + name);
    const auto online = tensors.find("model." + prefix + name);
    const bool take_average = weights == Weights::best && average != tensors.end();
    require(take_average || online != tensors.end(), "[{}] {} lacks model.{}{}", where, found.path, prefix,
            name);
    const at::Tensor& stored = take_average ? average->second : online->second;
    require(stored.sizes() == tensor.sizes(), "[{}] {} of {} has another shape than its configuration says",
            where, name, found.path);
    tensor.copy_(stored);
    averaged |= take_average;
  };
  for (const auto& item : module.named_parameters()) load(item.key(), item.value());
  for (const auto& item : module.named_buffers()) load(item.key(), item.value());
  tell_weights({found.path, weights, averaged});
  return averaged;
}

}  // namespace melete

#include "train/ema.h"

#include <torch/nn/module.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "config/schema.h"
#include "core/base/error.h"

namespace melete {

void describe(Schema& schema, EmaConfig& config) {
  schema.option("enabled", config.enabled, "keep a moving average of the weights");
  schema.option("beta", config.beta, "largest decay; 1: the average stays at its first copy")
      .at_least(0)
      .at_most(1);
  schema.option("update_after_step", config.update_after_step, "until then the average is a copy")
      .at_least(0)
      .unit("steps");
  schema.option("update_every", config.update_every, "steps between two updates").at_least(1).unit("steps");
  schema.option("inv_gamma", config.inv_gamma, "the decay is 1 - (1 + t / inv_gamma)^-power, at most beta");
  schema.option("power", config.power, "how fast the decay grows").at_least(0);
  schema.option("min_value", config.min_value, "smallest decay").at_least(0).at_most(1);
  schema.option("power_function", config.power_function,
                "beta grows with the step: (1 - 1 / (step + 1))^(1 + power), Karras et al. 2023");
}

Ema::Ema(torch::nn::Module& module, const EmaConfig& config, const Filter& wanted) : config_(config) {
  require(config.update_every >= 1, "[ema] expected update_every of at least 1, got {}", config.update_every);
  require(config.inv_gamma > 0, "[ema] expected inv_gamma above 0, got {}", config.inv_gamma);
  at::NoGradGuard no_gradient;
  std::set<const void*> seen;  // weights that are shared under two names are averaged once
  const auto add = [&](const std::string& name, const at::Tensor& tensor) {
    if (!tensor.defined() || !tensor.is_floating_point() || (wanted && !wanted(name))) return;
    if (!seen.insert(tensor.unsafeGetTensorImpl()).second) return;
    entries_.push_back({name, tensor, tensor.detach().clone()});
  };
  for (const auto& item : module.named_parameters()) add(item.key(), item.value());
  for (const auto& item : module.named_buffers()) add(item.key(), item.value());
}

void Ema::copy_online() {
  for (Entry& entry : entries_) entry.average.copy_(entry.online);
}

double Ema::decay() const {
  const auto t = static_cast<double>(std::max<int64_t>(step_ - config_.update_after_step - 1, 0));
  if (t <= 0) return 0;
  const double grown = 1 - std::pow(1 + t / config_.inv_gamma, -config_.power);
  return std::min(std::max(grown, config_.min_value), largest_decay());
}

double Ema::largest_decay() const {
  if (!config_.power_function) return config_.beta;
  return std::pow(1 - 1 / static_cast<double>(step_ + 1), 1 + config_.power);
}

void Ema::update() {
  require(!swapped_,
          "[ema] the averaged weights are in the model; an update now would average them with themselves");
  at::NoGradGuard no_gradient;
  const int64_t step = step_++;
  if (step % config_.update_every != 0) return;
  if (step <= config_.update_after_step) return copy_online();
  if (!started_) {
    copy_online();
    started_ = true;
  }
  if (config_.beta == 1) return;  // frozen, as in ema-pytorch
  const double weight = 1 - decay();
  for (Entry& entry : entries_) entry.average.lerp_(entry.online.detach(), weight);
}

void Ema::state(TensorMap& tensors, const std::string& prefix) const {
  require(!swapped_, "[ema] the averaged weights are in the model; they cannot be saved from there");
  tensors[prefix + "step"] = at::scalar_tensor(step_, at::kLong);
  tensors[prefix + "started"] = at::scalar_tensor(started_ ? 1 : 0, at::kLong);
  for (const Entry& entry : entries_) tensors[prefix + "average." + entry.name] = entry.average;
}

void Ema::load(const TensorMap& tensors, const std::string& prefix) {
  require(!swapped_, "[ema] the averaged weights are in the model; nothing can be loaded now");
  at::NoGradGuard no_gradient;
  const auto read = [&](const std::string& name) -> const at::Tensor& {
    const auto found = tensors.find(prefix + name);
    require(found != tensors.end(), "[ema] the checkpoint lacks {}{}; was it saved with ema.enabled = false?",
            prefix, name);
    return found->second;
  };
  step_ = read("step").item<int64_t>();
  started_ = read("started").item<int64_t>() != 0;
  for (Entry& entry : entries_) {
    const at::Tensor& saved = read("average." + entry.name);
    require(saved.sizes() == entry.average.sizes(), "[ema] {} has another shape in the checkpoint",
            entry.name);
    entry.average.copy_(saved);
  }
}

const at::Tensor& Ema::average(const std::string& name) const {
  const auto found =
      std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.name == name; });
  require(found != entries_.end(), "[ema] no average is kept of {}", name);
  return found->average;
}

EmaScope::EmaScope(Ema& ema) : ema_(ema) {
  require(!ema.swapped_, "[ema] the averaged weights are in the model already");
  swap();
}

EmaScope::~EmaScope() {
  swap();
}

void EmaScope::swap() {
  at::NoGradGuard no_gradient;
  for (Ema::Entry& entry : ema_.entries_) {
    const at::Tensor online = entry.online.tensor_data();  // another handle on the same memory
    entry.online.set_data(entry.average);
    entry.average = online;
  }
  ema_.swapped_ = !ema_.swapped_;
}

}  // namespace melete

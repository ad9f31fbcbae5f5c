#include "train/optimiser.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "config/schema.h"
#include "core/base/error.h"
#include "kernels/adam.h"

namespace melete {

void describe(Schema& schema, OptimiserConfig& config) {
  schema.option("learning_rate", config.learning_rate, "learning rate after the warm-up").at_least(0);
  schema.option("weight_decay", config.weight_decay, "above 0: AdamW with this decay; 0: Adam").at_least(0);
  schema.option("beta1", config.beta1, "memory of the mean gradient").at_least(0).at_most(1);
  schema.option("beta2", config.beta2, "memory of the squared gradient").at_least(0).at_most(1);
  schema.option("eps", config.eps, "added to the denominator of the step").at_least(0);
  schema
      .option("decay_from_dimensions", config.decay_from_dimensions,
              "tensors of fewer dimensions (biases, gains) are not decayed")
      .at_least(0);
}

Optimiser::Optimiser(NamedTensors parameters, const OptimiserConfig& config)
    : parameters_(std::move(parameters)), moments_(parameters_.size()), config_(config) {
  require(config.beta1 >= 0 && config.beta1 < 1 && config.beta2 >= 0 && config.beta2 < 1,
          "[optimiser] expected beta1 and beta2 in [0, 1), got {} and {}", config.beta1, config.beta2);
  std::set<std::string> names;
  std::set<const void*> tensors;
  for (const auto& [name, tensor] : parameters_) {
    require(tensor.defined() && tensor.is_floating_point(), "[optimiser] expected a float parameter for {}",
            name);
    require(names.insert(name).second, "[optimiser] two parameters are called {}", name);
    require(tensors.insert(tensor.unsafeGetTensorImpl()).second,
            "[optimiser] the parameter {} is listed twice under different names", name);
  }
}

void Optimiser::step(double learning_rate, double gradient_scale) {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    at::Tensor& parameter = parameters_[i].second;
    const at::Tensor& gradient = parameter.grad();
    if (!gradient.defined()) continue;
    Moments& moments = moments_[i];
    if (!moments.first.defined()) {
      moments.first = at::zeros_like(parameter, parameter.options().requires_grad(false));
      moments.second = at::zeros_like(moments.first);
    }
    AdamSettings settings;
    settings.learning_rate = learning_rate;
    settings.beta1 = config_.beta1;
    settings.beta2 = config_.beta2;
    settings.eps = config_.eps;
    settings.weight_decay = parameter.dim() >= config_.decay_from_dimensions ? config_.weight_decay : 0;
    settings.gradient_scale = gradient_scale;
    settings.step = ++moments.step;
    adam_update(parameter, gradient, moments.first, moments.second, settings);
  }
}

void Optimiser::clear_gradients() {
  for (auto& [name, parameter] : parameters_) parameter.mutable_grad().reset();
}

at::Tensor Optimiser::gradient_norm() const {
  std::vector<at::Tensor> tensors;
  for (const auto& [name, parameter] : parameters_) tensors.push_back(parameter);
  return melete::gradient_norm(tensors);
}

void Optimiser::state(TensorMap& tensors, const std::string& prefix) const {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (moments_[i].step == 0) continue;
    const std::string key = prefix + parameters_[i].first;
    tensors[key + ".first"] = moments_[i].first;
    tensors[key + ".second"] = moments_[i].second;
    tensors[key + ".step"] = at::scalar_tensor(moments_[i].step, at::kLong);
  }
}

void Optimiser::load(const TensorMap& tensors, const std::string& prefix) {
  at::NoGradGuard no_gradient;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const auto& [name, parameter] = parameters_[i];
    const auto read = [&, &parameter_name = name, &like = parameter](const char* what) {
      const auto found = tensors.find(prefix + parameter_name + what);
      require(found != tensors.end(), "[optimiser] the checkpoint lacks {}{}{}", prefix, parameter_name,
              what);
      require(found->second.sizes() == like.sizes(),
              "[optimiser] {}{}{} has another shape than its parameter", prefix, parameter_name, what);
      at::Tensor copy = at::empty_like(like, like.options().requires_grad(false));
      return copy.copy_(found->second);
    };
    moments_[i] = Moments{};
    const auto step = tensors.find(prefix + name + ".step");
    if (step == tensors.end()) continue;  // had not moved when it was saved
    moments_[i].step = step->second.item<int64_t>();
    moments_[i].first = read(".first");
    moments_[i].second = read(".second");
  }
}

at::Tensor gradient_norm(const std::vector<at::Tensor>& parameters) {
  at::NoGradGuard no_gradient;
  std::vector<at::Tensor> norms;
  for (const at::Tensor& parameter : parameters)
    if (parameter.grad().defined()) norms.push_back(parameter.grad().norm().to(at::kFloat));
  if (norms.empty()) return at::zeros({}, at::kFloat);
  return at::stack(norms).norm();
}

double clip_scale(double norm, double max_norm) {
  if (max_norm <= 0) return 1;
  return std::min(1.0, max_norm / (norm + 1e-6));
}

}  // namespace melete

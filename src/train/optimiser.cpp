#include "train/optimiser.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "config/schema.h"
#include "core/base/error.h"
#include "dist/group.h"
#include "kernels/adam.h"
#include "kernels/lion.h"

namespace melete {

void describe(Schema& schema, OptimiserConfig& config) {
  schema
      .option("kind", config.kind,
              "adam, or lion: steps of one size in the direction of the mean gradient's sign (try a third to "
              "a tenth of Adam's rate)")
      .one_of({"adam", "lion"});
  schema.option("learning_rate", config.learning_rate, "learning rate after the warm-up").at_least(0);
  schema.option("weight_decay", config.weight_decay, "above 0: AdamW (or Lion) with this decay; 0: none")
      .at_least(0);
  schema.option("beta1", config.beta1, "memory of the mean gradient").at_least(0).at_most(1);
  schema.option("beta2", config.beta2, "memory of the squared gradient").at_least(0).at_most(1);
  schema.option("eps", config.eps, "added to the denominator of the step").at_least(0);
  schema
      .option("decay_from_dimensions", config.decay_from_dimensions,
              "tensors of fewer dimensions (biases, gains) are not decayed")
      .at_least(0);
}

namespace {

// The elements of a tensor without holes, in the order of memory.
at::Tensor flat(const at::Tensor& tensor) {
  return tensor.detach().as_strided({tensor.numel()}, {1});
}

at::Tensor like_parameter(const at::Tensor& parameter) {
  return at::empty_strided(parameter.sizes(), parameter.strides(), parameter.options().requires_grad(false));
}

}  // namespace

Optimiser::Optimiser(NamedTensors parameters, const OptimiserConfig& config, Group* shards)
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
  if (shards == nullptr || shards->alone()) return;
  shards_ = shards;
  int64_t elements = 0;
  for (const auto& [name, tensor] : parameters_) {
    require(tensor.is_non_overlapping_and_dense() && tensor.scalar_type() == at::kFloat,
            "[optimiser] expected a dense float32 parameter for {}; try shard_optimiser = false", name);
    first_element_.push_back(elements);
    elements += tensor.numel();
  }
  share_elements_ = (elements + shards->size() - 1) / shards->size();
}

Optimiser::Share Optimiser::share_of(size_t index) const {
  const int64_t first = first_element_[index], count = parameters_[index].second.numel();
  const int64_t own = shards_->rank() * share_elements_;
  const int64_t begin = std::clamp<int64_t>(own - first, 0, count);
  return {begin, std::clamp<int64_t>(own + share_elements_ - first, begin, count)};
}

void Optimiser::step(double learning_rate, double gradient_scale) {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    at::Tensor& parameter = parameters_[i].second;
    const at::Tensor& gradient = parameter.grad();
    if (!gradient.defined()) continue;
    ++moments_[i].step;
    at::Tensor moved = parameter, along = gradient;
    if (shards_) {
      const Share share = share_of(i);
      if (share.begin == share.end) continue;
      if (gradient.strides() != parameter.strides()) along = like_parameter(parameter).copy_(gradient);
      moved = flat(parameter).slice(0, share.begin, share.end);
      along = flat(along).slice(0, share.begin, share.end);
    }
    move(i, moved, along, learning_rate, gradient_scale);
  }
  if (shards_) exchange_parameters();
}

// parameter and gradient: all of a parameter, or this rank's share
void Optimiser::move(size_t index, at::Tensor& parameter, const at::Tensor& gradient, double learning_rate,
                     double gradient_scale) {
  Moments& moments = moments_[index];
  if (!moments.first.defined()) {
    moments.first = at::zeros_like(parameter, parameter.options().requires_grad(false));
    if (has_second()) moments.second = at::zeros_like(moments.first);
  }
  const bool decays = parameters_[index].second.dim() >= config_.decay_from_dimensions;
  const double decay = decays ? config_.weight_decay : 0;
  if (config_.kind == "lion") {
    LionSettings settings;
    settings.learning_rate = learning_rate;
    settings.beta1 = config_.beta1;
    settings.beta2 = config_.beta2;
    settings.weight_decay = decay;
    settings.gradient_scale = gradient_scale;
    return lion_update(parameter, gradient, moments.first, settings);
  }
  AdamSettings settings;
  settings.learning_rate = learning_rate;
  settings.beta1 = config_.beta1;
  settings.beta2 = config_.beta2;
  settings.eps = config_.eps;
  settings.weight_decay = decay;
  settings.gradient_scale = gradient_scale;
  settings.step = moments.step;
  adam_update(parameter, gradient, moments.first, moments.second, settings);
}

void Optimiser::exchange_parameters() {
  const at::NoGradGuard no_gradient;
  at::Tensor own = at::zeros({share_elements_}, parameters_.front().second.options().requires_grad(false));
  const int64_t begin = shards_->rank() * share_elements_;
  for (size_t i = 0; i < parameters_.size(); ++i)
    if (const Share share = share_of(i); share.begin < share.end)
      own.narrow(0, first_element_[i] + share.begin - begin, share.end - share.begin)
          .copy_(flat(parameters_[i].second).slice(0, share.begin, share.end));
  const at::Tensor all = shards_->gather(own).flatten();
  for (size_t i = 0; i < parameters_.size(); ++i) {
    at::Tensor& parameter = parameters_[i].second;
    flat(parameter).copy_(all.narrow(0, first_element_[i], parameter.numel()));
  }
}

at::Tensor Optimiser::gather_moments(at::Tensor Moments::*which) const {
  const at::NoGradGuard no_gradient;
  at::Tensor own = at::zeros({share_elements_}, parameters_.front().second.options().requires_grad(false));
  const int64_t begin = shards_->rank() * share_elements_;
  for (size_t i = 0; i < parameters_.size(); ++i)
    if (const Share share = share_of(i); share.begin < share.end && moments_[i].step > 0)
      own.narrow(0, first_element_[i] + share.begin - begin, share.end - share.begin)
          .copy_(moments_[i].*which);
  return shards_->gather(own).flatten();
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
  at::Tensor all_first, all_second;
  if (shards_) {
    all_first = gather_moments(&Moments::first);
    if (has_second()) all_second = gather_moments(&Moments::second);
  }
  const auto whole = [&](size_t i, const at::Tensor& own, const at::Tensor& all) {
    if (!shards_) return own;
    const at::Tensor& parameter = parameters_[i].second;
    const at::Tensor moments = like_parameter(parameter);
    flat(moments).copy_(all.narrow(0, first_element_[i], parameter.numel()));
    return moments;
  };
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (moments_[i].step == 0) continue;
    const std::string key = prefix + parameters_[i].first;
    tensors[key + ".first"] = whole(i, moments_[i].first, all_first);
    if (has_second()) tensors[key + ".second"] = whole(i, moments_[i].second, all_second);
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
    if (has_second()) moments_[i].second = read(".second");
    if (!shards_) continue;
    const Share share = share_of(i);
    for (at::Tensor* moments : {&moments_[i].first, &moments_[i].second})
      if (moments->defined())
        *moments =
            share.begin < share.end ? flat(*moments).slice(0, share.begin, share.end).clone() : at::Tensor();
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

// Optimiser, warm-up with its schedulers, and the moving average of weights.
#include <torch/nn/module.h>

#include <set>

#include "core/base/error.h"
#include "golden.h"
#include "train/ema.h"
#include "train/optimiser.h"
#include "train/upstream_schedule.h"

namespace melete::golden::cases_training {
namespace {

bool has_step(const Case& reference, const std::string& prefix, int64_t step) {
  const std::string start = fmt::format("{}{}.", prefix, step);
  const auto found = reference.io.lower_bound(start);
  return found != reference.io.end() && found->first.rfind(start, 0) == 0;
}

struct Parameters {
  NamedTensors all;

  explicit Parameters(const Case& reference) {
    for (const auto& [name, tensor] : reference.weights)
      all.emplace_back(name, tensor.clone().set_requires_grad(true));
  }
  void set_gradients(const Case& reference, int64_t step) {
    for (auto& [name, tensor] : all) {
      const std::string key = fmt::format("in.grad.{}.{}", step, name);
      if (reference.has(key))
        tensor.mutable_grad() = reference.get(key).clone();
      else
        tensor.mutable_grad().reset();
    }
  }
  void compare(const Case& reference, Checker& checker, int64_t step) const {
    for (const auto& [name, tensor] : all) {
      const std::string key = fmt::format("param.{}.{}", step, name);
      checker.close(key, tensor.detach(), reference.out(key));
    }
  }
};

OptimiserConfig optimiser_of(const nlohmann::ordered_json& config) {
  OptimiserConfig optimiser;
  optimiser.learning_rate = config.value("lr", 1e-4);
  optimiser.weight_decay = config.value("wd", 1e-2);
  if (config.contains("betas")) {
    optimiser.beta1 = config.at("betas").at(0);
    optimiser.beta2 = config.at("betas").at(1);
  }
  optimiser.eps = config.value("eps", 1e-8);
  if (!config.value("group_wd_params", true)) optimiser.decay_from_dimensions = 0;
  return optimiser;
}

void check_optimiser(const Case& reference, Checker& checker) {
  expect_only(reference.config, {"lr", "wd", "betas", "eps", "group_wd_params", "filter_by_requires_grad",
                                 "use_lion"});  // accepted and ignored there
  Parameters parameters(reference);
  Optimiser optimiser(parameters.all, optimiser_of(reference.config));
  for (int64_t step = 0; has_step(reference, "in.grad.", step); ++step) {
    parameters.set_gradients(reference, step);
    optimiser.step(optimiser_of(reference.config).learning_rate);
    parameters.compare(reference, checker, step);
  }
}

void check_warmup(const Case& reference, Checker& checker) {
  const auto& config = reference.config;
  expect_only(config, {"lr", "wd", "betas", "eps", "group_wd_params", "filter_by_requires_grad",
                       "warmup_steps", "scheduler", "scheduler_kwargs"});
  const OptimiserConfig settings = optimiser_of(config);
  const bool scheduled = config.contains("scheduler") && config.at("scheduler").is_string();
  UpstreamSchedule schedule(
      settings.learning_rate, config.value("warmup_steps", int64_t{0}),
      TorchScheduler(scheduled ? config.at("scheduler").get<std::string>() : "",
                     config.value("scheduler_kwargs", nlohmann::ordered_json::object())));
  Parameters parameters(reference);
  Optimiser optimiser(parameters.all, settings);
  std::vector<double> rates = {schedule.rate(0)};
  for (int64_t step = 0; has_step(reference, "in.grad.", step); ++step) {
    parameters.set_gradients(reference, step);
    if (const auto beta1 = schedule.momentum(step)) optimiser.set_beta1(*beta1);
    optimiser.step(schedule.rate(step));
    parameters.compare(reference, checker, step);
    rates.push_back(schedule.rate(step + 1));
  }
  const at::Tensor want = reference.out("lr").to(at::kDouble);  // [steps + 1, groups]
  const at::Tensor got = at::tensor(rates, at::kDouble).unsqueeze(1).expand_as(want);
  checker.close("lr", got, want);
  // Rates are smaller than the floor of the comparison above, so compare them as ratios too.
  const double largest = want.abs().max().item<double>();
  if (largest > 0) checker.close("lr over the largest", got / largest, want / largest);
}

struct Averaged : torch::nn::Module {};

void check_ema(const Case& reference, Checker& checker) {
  const auto& config = reference.config;
  expect_only(config, {"beta", "karras_beta", "update_after_step", "update_every", "inv_gamma", "power",
                       "min_value", "include_online_model", "allow_different_devices"});
  EmaConfig settings;
  settings.beta = config.value("beta", 0.9999);
  settings.power_function = config.value("karras_beta", false);
  settings.update_after_step = config.value("update_after_step", int64_t{100});
  settings.update_every = config.value("update_every", int64_t{10});
  settings.inv_gamma = config.value("inv_gamma", 1.0);
  settings.power = config.value("power", 2.0 / 3);
  settings.min_value = config.value("min_value", 0.0);

  // What changes has inputs; what is only in the weights (an integer counter) stays.
  std::map<std::string, at::Tensor> tensors;
  for (const auto& [key, tensor] : reference.weights)
    if (key.rfind("online_model.", 0) == 0) tensors[key.substr(13)] = tensor.clone();
  std::set<std::string> changing;
  for (const auto& [key, tensor] : reference.io)
    if (key.rfind("in.", 0) == 0 && key.size() > 5 && key.compare(key.size() - 2, 2, ".0") == 0) {
      const std::string name = key.substr(3, key.size() - 5);
      changing.insert(name);
      if (tensors.count(name) == 0) tensors[name] = tensor.clone();  // not persistent
    }
  Averaged module;
  for (const auto& [name, tensor] : tensors)
    if (tensor.is_floating_point() && name == "w")
      module.register_parameter(name, tensor);
    else
      module.register_buffer(name, tensor);

  Ema ema(module, settings);
  std::vector<double> decays;
  for (int64_t step = 0; reference.has(fmt::format("in.{}.{}", *changing.begin(), step)); ++step) {
    {
      at::NoGradGuard no_gradient;
      for (const std::string& name : changing)
        tensors.at(name).copy_(reference.in(fmt::format("{}.{}", name, step)));
    }
    ema.update();
    decays.push_back(ema.decay());
    for (const auto& [name, tensor] : tensors) {
      const std::string key = fmt::format("{}.{}", name, step);
      checker.close(key, changing.count(name) > 0 ? ema.average(name) : tensor, reference.out(key));
    }
    const std::string started = fmt::format("initted.{}", step);
    if (reference.has("out." + started))
      checker.close(started, at::scalar_tensor(ema.started() ? 1 : 0, at::kLong),
                    reference.out(started).to(at::kLong));
  }
  if (reference.has("out.decay_after"))
    checker.close("decay_after", at::tensor(decays, at::kDouble),
                  reference.out("decay_after").to(at::kDouble));
}

const bool registered = register_case("audiolm", "get_optimizer", check_optimiser) &&
                        register_case("audiolm", "OptimizerWithWarmupSchedule", check_warmup) &&
                        register_case("audiolm", "EMA (ema_pytorch)", check_ema);

}  // namespace
}  // namespace melete::golden::cases_training

#include "train/upstream_schedule.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>
#include <set>

#include "core/base/error.h"

namespace melete {

TorchScheduler::TorchScheduler(const std::string& name, const nlohmann::ordered_json& arguments)
    : arguments_(arguments.is_null() ? nlohmann::ordered_json::object() : arguments) {
  struct Known {
    Kind kind;
    std::set<std::string> arguments;
    std::vector<std::string> required;
  };
  static const std::map<std::string, Known> known = {
      {"", {Kind::constant, {}, {}}},
      {"LambdaLR", {Kind::constant, {}, {}}},
      {"StepLR", {Kind::step, {"step_size", "gamma"}, {"step_size"}}},
      {"MultiStepLR", {Kind::multi_step, {"milestones", "gamma"}, {"milestones"}}},
      {"ConstantLR", {Kind::constant_factor, {"factor", "total_iters"}, {}}},
      {"LinearLR", {Kind::linear, {"start_factor", "end_factor", "total_iters"}, {}}},
      {"ExponentialLR", {Kind::exponential, {"gamma"}, {"gamma"}}},
      {"PolynomialLR", {Kind::polynomial, {"total_iters", "power"}, {}}},
      {"CosineAnnealingLR", {Kind::cosine, {"T_max", "eta_min"}, {"T_max"}}},
      {"CosineAnnealingWarmRestarts", {Kind::restarts, {"T_0", "T_mult", "eta_min"}, {"T_0"}}},
      {"OneCycleLR",
       {Kind::one_cycle,
        {"max_lr", "total_steps", "epochs", "steps_per_epoch", "pct_start", "anneal_strategy",
         "cycle_momentum", "base_momentum", "max_momentum", "div_factor", "final_div_factor", "three_phase"},
        {"max_lr"}}},
      {"CyclicLR",
       {Kind::cyclic,
        {"base_lr", "max_lr", "step_size_up", "step_size_down", "mode", "gamma", "cycle_momentum",
         "base_momentum", "max_momentum"},
        {"base_lr", "max_lr"}}},
  };
  const auto found = known.find(name);
  require(found != known.end(),
          "[schedule] no scheduler is called {}; try CosineAnnealingLR, StepLR or LinearLR", name);
  kind_ = found->second.kind;
  for (const auto& item : arguments_.items())
    require(found->second.arguments.count(item.key()) > 0, "[schedule] {} has no argument {}", name,
            item.key());
  for (const std::string& key : found->second.required)
    require(arguments_.contains(key), "[schedule] {} needs the argument {}", name, key);
}

double TorchScheduler::argument(const char* key, double otherwise) const {
  const auto found = arguments_.find(key);
  return found == arguments_.end() || found->is_null() ? otherwise : found->get<double>();
}

bool TorchScheduler::says(const char* key, bool otherwise) const {
  return arguments_.value(key, otherwise);
}

CyclePoint TorchScheduler::one_cycle_at(int64_t epoch) const {
  OneCycleConfig config;
  config.rising_share = argument("pct_start", 0.3);
  if (arguments_.value("anneal_strategy", "cos") == "linear") config.shape = "linear";
  config.start_divisor = argument("div_factor", 25);
  config.end_divisor = argument("final_div_factor", 1e4);
  config.three_parts = says("three_phase", false);
  config.low_momentum = argument("base_momentum", 0.85);
  config.high_momentum = argument("max_momentum", 0.95);
  const double total = argument("total_steps", argument("epochs", 1) * argument("steps_per_epoch", 1));
  return one_cycle(config, argument("max_lr", 1), static_cast<int64_t>(total), epoch);
}

CyclePoint TorchScheduler::cyclic_at(int64_t epoch) const {
  CyclicConfig config;
  config.up_steps = static_cast<int64_t>(argument("step_size_up", 2000));
  config.down_steps = static_cast<int64_t>(argument("step_size_down", 0));
  config.mode = arguments_.value("mode", "triangular");
  config.gamma = argument("gamma", 1);
  config.low_momentum = argument("base_momentum", 0.8);
  config.high_momentum = argument("max_momentum", 0.9);
  return cyclic(config, argument("base_lr", 0), argument("max_lr", 1), epoch);
}

std::optional<double> TorchScheduler::momentum(int64_t epoch) const {
  const bool moves = (kind_ == Kind::one_cycle || kind_ == Kind::cyclic) && says("cycle_momentum", true);
  if (!moves) return {};
  return (kind_ == Kind::one_cycle ? one_cycle_at(epoch) : cyclic_at(epoch)).momentum;
}

double TorchScheduler::rate(int64_t epoch, double before, double base) const {
  using std::numbers::pi;
  const auto e = static_cast<double>(epoch);
  switch (kind_) {
    case Kind::constant:
      return base;
    case Kind::step: {
      const auto size = static_cast<int64_t>(argument("step_size", 1));
      return epoch == 0 || epoch % size != 0 ? before : before * argument("gamma", 0.1);
    }
    case Kind::multi_step: {
      int64_t drops = 0;  // a milestone listed twice drops twice
      for (const auto& milestone : arguments_.at("milestones")) drops += milestone.get<int64_t>() == epoch;
      return drops == 0 ? before : before * std::pow(argument("gamma", 0.1), static_cast<double>(drops));
    }
    case Kind::constant_factor: {
      const double factor = argument("factor", 1.0 / 3);
      if (epoch == 0) return before * factor;
      return e == argument("total_iters", 5) ? before * (1 / factor) : before;
    }
    case Kind::linear: {
      const double start = argument("start_factor", 1.0 / 3);
      const double range = argument("end_factor", 1) - start;
      const double total = argument("total_iters", 5);
      if (epoch == 0) return before * start;
      if (e > total) return before;
      return before * (1 + range / (total * start + (e - 1) * range));
    }
    case Kind::exponential:
      return epoch == 0 ? before : before * argument("gamma", 1);
    case Kind::polynomial: {
      const double total = argument("total_iters", 5);
      if (epoch == 0 || e > total) return before;
      return before * std::pow((1 - e / total) / (1 - (e - 1) / total), argument("power", 1));
    }
    case Kind::cosine: {
      const double t_max = argument("T_max", 1);
      const double minimum = argument("eta_min", 0);
      if (epoch == 0) return before;
      // At the trough the recursion would divide by zero, so the first step upwards comes from the base rate.
      if (std::fmod(e - 1 - t_max, 2 * t_max) == 0)
        return before + (base - minimum) * (1 - std::cos(pi / t_max)) / 2;
      return (1 + std::cos(pi * e / t_max)) / (1 + std::cos(pi * (e - 1) / t_max)) * (before - minimum) +
             minimum;
    }
    case Kind::one_cycle:
      return one_cycle_at(epoch).rate;
    case Kind::cyclic:
      return cyclic_at(epoch).rate;
    case Kind::restarts: {
      const double growth = argument("T_mult", 1);
      const double minimum = argument("eta_min", 0);
      double period = argument("T_0", 1);
      double within = e;
      if (growth == 1) within = std::fmod(within, period);
      while (within >= period) {
        within -= period;
        period *= growth;
      }
      return minimum + (base - minimum) * (1 + std::cos(pi * within / period)) / 2;
    }
  }
  fail("[schedule] unknown scheduler");
}

UpstreamSchedule::UpstreamSchedule(double learning_rate, int64_t warmup_steps, TorchScheduler scheduler)
    : learning_rate_(learning_rate), warmup_steps_(warmup_steps), scheduler_(std::move(scheduler)) {
  require(warmup_steps >= 1, "[schedule] upstream_warmup needs warmup_steps of at least 1, got {}",
          warmup_steps);
  restart();
}

double UpstreamSchedule::dampened(double rate) const {
  return rate * std::min(1.0, static_cast<double>(step_ + 1) / static_cast<double>(warmup_steps_));
}

void UpstreamSchedule::restart() {
  step_ = 0;
  remembered_ = learning_rate_;
  base_rate_ = dampened(learning_rate_);
  in_force_ = scheduler_.rate(0, base_rate_, base_rate_);
}

void UpstreamSchedule::advance() {
  ++step_;
  remembered_ = scheduler_.rate(step_, remembered_, base_rate_);
  in_force_ = dampened(remembered_);
}

double UpstreamSchedule::rate(int64_t step) {
  if (step < step_) restart();
  while (step_ < step) advance();
  return in_force_;
}

}  // namespace melete

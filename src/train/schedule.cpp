#include "train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "config/schema.h"
#include "core/base/error.h"
#include "train/upstream_schedule.h"

namespace melete {

void describe(Schema& schema, ScheduleConfig& config) {
  schema.option("warmup_steps", config.warmup_steps, "steps of linear warm-up").at_least(0).unit("steps");
  schema.option("kind", config.kind, "curve of the learning rate after the warm-up")
      .one_of({"constant", "linear", "cosine", "cosine_restarts", "exponential", "step"});
  schema
      .option("decay_steps", config.decay_steps,
              "linear, cosine: from the end of the warm-up to the minimum; 0: to the end of the run")
      .at_least(0)
      .unit("steps");
  schema.option("minimum", config.minimum, "no curve goes below this learning rate").at_least(0);
  schema.option("period", config.period, "cosine_restarts: length of the first period")
      .at_least(1)
      .unit("steps");
  schema.option("period_growth", config.period_growth, "cosine_restarts: each period over the one before")
      .at_least(1);
  schema.option("gamma", config.gamma, "exponential: factor a step; step: factor every step_size")
      .at_least(0);
  schema.option("step_size", config.step_size, "step: steps between two drops").at_least(1).unit("steps");
  schema.option("upstream_warmup", config.upstream_warmup,
                "the rates audiolm-pytorch really uses: warm-up built before the scheduler");
}

namespace {

TorchScheduler same_in_torch(const ScheduleConfig& c, double learning_rate, int64_t decay_steps) {
  if (c.kind == "linear")
    return TorchScheduler("LinearLR", {{"start_factor", 1.0},
                                       {"end_factor", learning_rate > 0 ? c.minimum / learning_rate : 0.0},
                                       {"total_iters", decay_steps}});
  if (c.kind == "cosine")
    return TorchScheduler("CosineAnnealingLR", {{"T_max", decay_steps}, {"eta_min", c.minimum}});
  if (c.kind == "cosine_restarts")
    return TorchScheduler("CosineAnnealingWarmRestarts",
                          {{"T_0", c.period}, {"T_mult", c.period_growth}, {"eta_min", c.minimum}});
  if (c.kind == "exponential") return TorchScheduler("ExponentialLR", {{"gamma", c.gamma}});
  if (c.kind == "step") return TorchScheduler("StepLR", {{"step_size", c.step_size}, {"gamma", c.gamma}});
  return TorchScheduler("", nlohmann::ordered_json::object());
}

}  // namespace

Schedule::Schedule(const ScheduleConfig& config, double learning_rate, int64_t run_steps)
    : config_(config), learning_rate_(learning_rate) {
  require(config.kind == "constant" || config.kind == "linear" || config.kind == "cosine" ||
              config.kind == "cosine_restarts" || config.kind == "exponential" || config.kind == "step",
          "[schedule] expected kind constant, linear, cosine, cosine_restarts, exponential or step, got {}",
          config.kind);
  require(config.minimum <= learning_rate, "[schedule] the minimum {} is above the learning rate {}",
          config.minimum, learning_rate);
  require(
      config.warmup_steps >= 0 && config.period >= 1 && config.period_growth >= 1 && config.step_size >= 1,
      "[schedule] expected warmup_steps of at least 0 and period, period_growth, step_size of at least 1");
  const int64_t rest = run_steps - config.warmup_steps;
  decay_steps_ = std::max<int64_t>(1, config.decay_steps > 0 ? config.decay_steps : rest);
  if (config.upstream_warmup)
    upstream_ = std::make_unique<UpstreamSchedule>(learning_rate, config.warmup_steps,
                                                   same_in_torch(config, learning_rate, decay_steps_));
}

Schedule::~Schedule() = default;
Schedule::Schedule(Schedule&&) noexcept = default;
Schedule& Schedule::operator=(Schedule&&) noexcept = default;

double Schedule::rate(int64_t step) {
  if (upstream_) return upstream_->rate(step);
  if (step < config_.warmup_steps)
    return learning_rate_ * static_cast<double>(step + 1) / static_cast<double>(config_.warmup_steps);
  return curve(step - config_.warmup_steps);
}

double Schedule::curve(int64_t t) const {
  const double range = learning_rate_ - config_.minimum;
  const auto half_cosine = [&](double position) {
    return config_.minimum + range * (1 + std::cos(std::numbers::pi * position)) / 2;
  };
  const double position = std::min(1.0, static_cast<double>(t) / static_cast<double>(decay_steps_));
  if (config_.kind == "linear") return position >= 1 ? config_.minimum : learning_rate_ - range * position;
  if (config_.kind == "cosine") return position >= 1 ? config_.minimum : half_cosine(position);
  if (config_.kind == "cosine_restarts") {
    int64_t period = config_.period;
    int64_t within = t;
    if (config_.period_growth == 1) within %= period;
    while (within >= period) {
      within -= period;
      period *= config_.period_growth;
    }
    return half_cosine(static_cast<double>(within) / static_cast<double>(period));
  }
  if (config_.kind == "exponential")
    return std::max(config_.minimum, learning_rate_ * std::pow(config_.gamma, static_cast<double>(t)));
  if (config_.kind == "step")
    return std::max(config_.minimum,
                    learning_rate_ * std::pow(config_.gamma, static_cast<double>(t / config_.step_size)));
  return learning_rate_;
}

}  // namespace melete

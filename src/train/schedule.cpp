#include "train/schedule.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numbers>

#include "config/schema.h"
#include "core/base/error.h"
#include "train/upstream_schedule.h"

namespace melete {

const std::vector<std::string>& schedule_kinds() {
  static const std::vector<std::string> kinds = {"constant",    "linear", "cosine",     "cosine_restarts",
                                                 "exponential", "step",   "multi_step", "polynomial",
                                                 "one_cycle",   "cyclic", "table"};
  return kinds;
}

void describe(Schema& schema, ScheduleConfig& config) {
  schema.option("warmup_steps", config.warmup_steps, "steps of linear warm-up").at_least(0).unit("steps");
  schema.option("warmup_from", config.warmup_from, "learning rate that the warm-up rises from").at_least(0);
  schema.option("kind", config.kind, "curve of the learning rate after the warm-up").one_of(schedule_kinds());
  schema
      .option(
          "decay_steps", config.decay_steps,
          "linear, cosine, polynomial, one_cycle: from the end of the warm-up to the end of the curve; 0: "
          "to the end of the run")
      .at_least(0)
      .unit("steps");
  schema.option("minimum", config.minimum, "no curve goes below this learning rate; cyclic: where it turns")
      .at_least(0);
  schema.option("period", config.period, "cosine_restarts: length of the first period")
      .at_least(1)
      .unit("steps");
  schema.option("period_growth", config.period_growth, "cosine_restarts: each period over the one before")
      .at_least(1);
  schema.option("gamma", config.gamma, "exponential: factor a step; step, multi_step: factor of a drop")
      .at_least(0);
  schema.option("step_size", config.step_size, "step: steps between two drops").at_least(1).unit("steps");
  schema
      .option("milestones", config.milestones,
              "multi_step: steps after the warm-up at which it drops; one that is listed twice drops twice")
      .at_least(1)
      .unit("steps");
  schema.option("power", config.power, "polynomial: 1 is a straight line").at_least(0);
  schema.option("table", config.table,
                "table: \"1000:0.5\" is half of the learning rate from 1000 steps after the warm-up on");
  schema.option("table_in_lines", config.table_in_lines,
                "table: straight lines from point to point instead of stairs");
  schema.section("one_cycle", config.one_cycle, "kind one_cycle: up once and down to next to nothing");
  schema.section("cyclic", config.cyclic,
                 "kind cyclic: up and down between the minimum and the learning rate");
  schema.option("upstream_warmup", config.upstream_warmup,
                "the rates audiolm-pytorch really uses: warm-up built before the scheduler");
  schema.only_for("decay_steps", config.kind, {"linear", "cosine", "polynomial", "one_cycle"});
  schema.only_for("period", config.kind, {"cosine_restarts"});
  schema.only_for("period_growth", config.kind, {"cosine_restarts"});
  schema.only_for("gamma", config.kind, {"exponential", "step", "multi_step"});
  schema.only_for("step_size", config.kind, {"step"});
  schema.only_for("milestones", config.kind, {"multi_step"});
  schema.only_for("power", config.kind, {"polynomial"});
  for (const char* name : {"table", "table_in_lines"}) schema.only_for(name, config.kind, {"table"});
  for (const char* name : {"one_cycle", "cyclic"}) schema.only_for(name, config.kind, {name});
}

namespace {

TorchScheduler same_in_torch(const ScheduleConfig& c, double learning_rate, int64_t decay_steps) {
  if (c.kind == "constant") return TorchScheduler("", nlohmann::ordered_json::object());
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
  if (c.kind == "multi_step")
    return TorchScheduler("MultiStepLR", {{"milestones", c.milestones}, {"gamma", c.gamma}});
  if (c.kind == "polynomial")
    return TorchScheduler("PolynomialLR", {{"total_iters", decay_steps}, {"power", c.power}});
  fail("[schedule] upstream_warmup has no {}; try one of the others, or warmup_steps without upstream_warmup",
       c.kind);
}

std::pair<int64_t, double> read_point(const std::string& text) {
  std::pair<int64_t, double> point;
  const char* end = text.data() + text.size();
  const auto [colon, bad_step] = std::from_chars(text.data(), end, point.first);
  const bool step_read = bad_step == std::errc() && colon != end && *colon == ':';
  const auto [rest, bad_factor] = step_read ? std::from_chars(colon + 1, end, point.second)
                                            : std::from_chars_result{end, std::errc::invalid_argument};
  require(step_read && bad_factor == std::errc() && rest == end && point.first >= 0 && point.second >= 0 &&
              std::isfinite(point.second),
          "[schedule] expected a step and a factor like \"1000:0.5\" in the table, got \"{}\"", text);
  return point;
}

// The first point is of step 0: the whole learning rate, unless the table says otherwise.
std::vector<std::pair<int64_t, double>> read_table(const std::vector<std::string>& lines) {
  require(!lines.empty(), "[schedule] kind table needs points; try table = [\"1000:0.5\", \"2000:0.1\"]");
  std::vector<std::pair<int64_t, double>> points;
  for (const std::string& line : lines) {
    const auto point = read_point(line);
    if (points.empty() && point.first > 0) points.emplace_back(0, 1.0);
    require(points.empty() || points.back().first < point.first,
            "[schedule] expected a table whose steps grow, got {} after {}", point.first,
            points.empty() ? 0 : points.back().first);
    points.push_back(point);
  }
  return points;
}

}  // namespace

Schedule::Schedule(const ScheduleConfig& config, double learning_rate, int64_t run_steps)
    : config_(config), learning_rate_(learning_rate) {
  const auto& kinds = schedule_kinds();
  require(std::find(kinds.begin(), kinds.end(), config.kind) != kinds.end(),
          "[schedule] expected a kind of {}; got {}", fmt::join(kinds, ", "), config.kind);
  require(config.minimum <= learning_rate, "[schedule] the minimum {} is above the learning rate {}",
          config.minimum, learning_rate);
  require(
      config.warmup_steps >= 0 && config.period >= 1 && config.period_growth >= 1 && config.step_size >= 1,
      "[schedule] expected warmup_steps of at least 0 and period, period_growth, step_size of at least 1");
  require(config.warmup_from >= 0 && config.warmup_from <= learning_rate,
          "[schedule] expected a warm-up from a rate between 0 and the learning rate {}, got warmup_from {}",
          learning_rate, config.warmup_from);
  require(config.warmup_from == 0 || !config.upstream_warmup,
          "[schedule] upstream_warmup rises from 0 in its own way; leave warmup_from or upstream_warmup out");
  require(config.kind != "multi_step" || !config.milestones.empty(),
          "[schedule] kind multi_step needs milestones; try milestones = [1000, 2000]");
  if (config.kind == "table") table_ = read_table(config.table);
  const int64_t rest = run_steps - config.warmup_steps;
  decay_steps_ = std::max<int64_t>(1, config.decay_steps > 0 ? config.decay_steps : rest);
  const bool begins_elsewhere =
      config.kind == "one_cycle" || config.kind == "cyclic" || config.kind == "table";
  first_rate_ = begins_elsewhere ? std::max(config.minimum, curve(0)) : learning_rate;
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
    return config_.warmup_from + (first_rate_ - config_.warmup_from) * static_cast<double>(step + 1) /
                                     static_cast<double>(config_.warmup_steps);
  return std::max(config_.minimum, curve(step - config_.warmup_steps));
}

std::optional<double> Schedule::momentum(int64_t step) const {
  const int64_t t = std::max<int64_t>(0, step - config_.warmup_steps);
  if (config_.kind == "one_cycle" && config_.one_cycle.cycle_momentum)
    return one_cycle(config_.one_cycle, learning_rate_, decay_steps_, t).momentum;
  if (config_.kind == "cyclic" && config_.cyclic.cycle_momentum)
    return cyclic(config_.cyclic, config_.minimum, learning_rate_, t).momentum;
  return std::nullopt;
}

double Schedule::curve(int64_t t) const {
  const double position = std::min(1.0, static_cast<double>(t) / static_cast<double>(decay_steps_));
  const double range = learning_rate_ - config_.minimum;
  if (config_.kind == "linear") return position >= 1 ? config_.minimum : learning_rate_ - range * position;
  if (config_.kind == "cosine") return position >= 1 ? config_.minimum : half_cosine(position);
  if (config_.kind == "polynomial") return config_.minimum + range * std::pow(1 - position, config_.power);
  if (config_.kind == "cosine_restarts") return restarts(t);
  if (config_.kind == "exponential") return drops(static_cast<double>(t));
  if (config_.kind == "step") return drops(static_cast<double>(t / config_.step_size));
  if (config_.kind == "multi_step") {
    const auto passed = std::count_if(config_.milestones.begin(), config_.milestones.end(),
                                      [&](int64_t milestone) { return milestone <= t; });
    return drops(static_cast<double>(passed));
  }
  if (config_.kind == "one_cycle") return one_cycle(config_.one_cycle, learning_rate_, decay_steps_, t).rate;
  if (config_.kind == "cyclic") return cyclic(config_.cyclic, config_.minimum, learning_rate_, t).rate;
  if (config_.kind == "table") return tabled(t);
  return learning_rate_;
}

double Schedule::half_cosine(double position) const {
  const double range = learning_rate_ - config_.minimum;
  return config_.minimum + range * (1 + std::cos(std::numbers::pi * position)) / 2;
}

double Schedule::restarts(int64_t t) const {
  int64_t period = config_.period;
  int64_t within = t;
  if (config_.period_growth == 1) within %= period;
  while (within >= period) {
    within -= period;
    period *= config_.period_growth;
  }
  return half_cosine(static_cast<double>(within) / static_cast<double>(period));
}

double Schedule::drops(double count) const {
  return learning_rate_ * std::pow(config_.gamma, count);
}

double Schedule::tabled(int64_t t) const {
  const auto next = std::upper_bound(table_.begin(), table_.end(), t,
                                     [](int64_t step, const auto& point) { return step < point.first; });
  const auto& [step, factor] = *(next - 1);
  if (!config_.table_in_lines || next == table_.end()) return learning_rate_ * factor;
  const double position = static_cast<double>(t - step) / static_cast<double>(next->first - step);
  return learning_rate_ * (factor + (next->second - factor) * position);
}

}  // namespace melete

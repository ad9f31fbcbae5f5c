#include "generate/ode.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>

#include "config/schema.h"
#include "core/base/error.h"
#include "core/device.h"
#include "generate/runge_kutta.h"

namespace melete {

namespace {

// Steps over 32nds of the way that empirically pruned step sampling keeps (Zheng et al. 2025).
const std::map<int64_t, std::vector<int>>& pruned_steps() {
  static const std::map<int64_t, std::vector<int>> kept = {
      {5, {0, 2, 4, 8, 16, 32}},
      {6, {0, 2, 4, 6, 8, 16, 32}},
      {7, {0, 2, 4, 6, 8, 16, 24, 32}},
      {10, {0, 2, 4, 6, 8, 12, 16, 20, 24, 28, 32}},
      {12, {0, 2, 4, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32}},
      {16, {0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32}}};
  return kept;
}

std::vector<double> unbent_times(const OdeConfig& config) {
  if (!config.times.empty()) return config.times;
  std::vector<double> times;
  if (config.grid == "epss") {
    const auto found = pruned_steps().find(config.steps);
    require(found != pruned_steps().end(), "[ode] the epss grid has 5, 6, 7, 10, 12 or 16 steps, got {}",
            config.steps);
    for (const int part : found->second) times.push_back(part / 32.0);
    return times;
  }
  require(config.grid == "uniform", "[ode] expected grid uniform or epss, got `{}`", config.grid);
  require(config.steps >= 1, "[ode] expected at least one step, got {}", config.steps);
  for (int64_t i = 0; i <= config.steps; ++i)
    times.push_back(static_cast<double>(i) / static_cast<double>(config.steps));
  return times;
}

// x + step * (sum of weights * slopes); step [rows, 1, ...] or a number
template <class Step>
at::Tensor along(const at::Tensor& x, const std::vector<at::Tensor>& slopes,
                 const std::vector<double>& weights, const Step& step) {
  at::Tensor sum;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (weights[i] == 0) continue;
    sum = sum.defined() ? sum.add_(slopes[i], weights[i]) : slopes[i] * weights[i];
  }
  return sum.defined() ? x + sum * step : x;
}

at::Tensor one_time(double time, const at::Tensor& like) {
  return at::full({1}, time, like.options().dtype(at::kFloat));
}

OdeSolution solve_fixed(const Flow& flow, const at::Tensor& start, const std::vector<double>& times,
                        const RungeKutta& method) {
  OdeSolution solution;
  solution.x = start;
  for (size_t i = 0; i + 1 < times.size(); ++i) {
    const double step = times[i + 1] - times[i];
    std::vector<at::Tensor> slopes;
    for (size_t stage = 0; stage < method.nodes.size(); ++stage)
      slopes.push_back(flow(one_time(times[i] + method.nodes[stage] * step, start),
                            along(solution.x, slopes, method.stages[stage], step)));
    solution.x = along(solution.x, slopes, method.solution, step);
    solution.evaluations += static_cast<int64_t>(slopes.size());
    ++solution.steps;
  }
  return solution;
}

// Step sizes by the error of each step: Hairer, Norsett and Wanner, "Solving Ordinary Differential Equations
// I", section II.4. Times and sizes are float64 on the CPU; the state is what it was given as.
class AdaptiveSolver {
 public:
  AdaptiveSolver(const Flow& flow, const at::Tensor& start, double end, const OdeConfig& config)
      : flow_(flow),
        config_(config),
        method_(runge_kutta(config.method)),
        start_(start),
        rows_(config.as_torchdiffeq ? 1 : start.size(0)),
        end_(end) {}

  OdeSolution solve(double begin) {
    time_ = at::full({rows_}, begin, at::kDouble);
    x_ = start_.reshape({rows_, -1});
    slope_ = evaluate(time_, x_);
    at::Tensor step = first_step();
    while ((time_ < end_).any().item<bool>()) {
      require(solution_.steps < config_.most_steps,
              "[ode] {} did not reach the end within {} steps; try a larger tolerance", config_.method,
              config_.most_steps);
      if (!config_.as_torchdiffeq) step = at::minimum(step, end_ - time_);
      step = advance(step);
      ++solution_.steps;
    }
    solution_.x = x_.view(start_.sizes());
    return solution_;
  }

 private:
  at::Tensor evaluate(const at::Tensor& times, const at::Tensor& x) {
    ++solution_.evaluations;
    return flow_(times.to(x.device(), at::kFloat), x.view(start_.sizes())).reshape(x.sizes());
  }

  at::Tensor column(const at::Tensor& row_values) const {  // [rows] float64 -> [rows, 1] as the state
    return row_values.to(x_.device(), x_.scalar_type()).unsqueeze(1);
  }

  // Root mean square of each row: [rows] float64 on the CPU
  static at::Tensor row_norm(const at::Tensor& x) {
    return x.square().mean(1).sqrt().to(at::kCPU, at::kDouble);
  }

  at::Tensor tolerated(const at::Tensor& magnitude) const {
    return config_.absolute_tolerance + magnitude * config_.relative_tolerance;
  }

  at::Tensor first_step() {
    const at::Tensor scale = tolerated(x_.abs());
    const at::Tensor size = row_norm(x_ / scale), speed = row_norm(slope_ / scale);
    at::Tensor probe =
        at::where(at::logical_or(size < 1e-5, speed < 1e-5), at::full_like(size, 1e-6), 0.01 * size / speed);
    if (!config_.as_torchdiffeq) probe = at::minimum(probe, end_ - time_);
    const at::Tensor next = evaluate(time_ + probe, x_ + slope_ * column(probe));
    const at::Tensor bend = row_norm((next - slope_) / scale) / probe;
    const at::Tensor worst = at::maximum(speed, bend);
    const at::Tensor guess =
        at::where(worst <= 1e-15, (probe * 1e-3).clamp_min(1e-6), at::pow(0.01 / worst, 1.0 / method_.order));
    return at::minimum(100 * probe, guess);
  }

  // Tries a step in every row that is not at the end, and gives the sizes of the next one.
  at::Tensor advance(const at::Tensor& step) {
    const at::Tensor width = column(step);
    std::vector<at::Tensor> slopes = {slope_};
    at::Tensor stage_x;
    for (size_t stage = 1; stage < method_.nodes.size(); ++stage) {
      stage_x = along(x_, slopes, method_.stages[stage], width);
      slopes.push_back(evaluate(time_ + method_.nodes[stage] * step, stage_x));
    }
    const at::Tensor next = method_.ends_with_slope() ? stage_x : along(x_, slopes, method_.solution, width);
    const at::Tensor error = along(at::zeros_like(x_), slopes, method_.error, width);
    const at::Tensor ratio = row_norm(error / tolerated(at::maximum(x_.abs(), next.abs())));
    require(ratio.isfinite().all().item<bool>(), "[ode] the flow is not finite at time {:.4f}",
            time_.max().item<double>());

    const at::Tensor running = time_ < end_;
    const at::Tensor accepted = at::logical_and(running, ratio <= 1);
    solution_.rejected += at::logical_and(running, ratio > 1).sum().item<int64_t>();
    at::Tensor new_time = time_ + step;
    if (!config_.as_torchdiffeq)
      new_time = at::where(step >= end_ - time_, at::full_like(step, end_), new_time);
    const bool past_end = config_.as_torchdiffeq && accepted.item<bool>() && new_time.item<double>() > end_;
    const at::Tensor result = past_end ? interpolated(next, slopes, step.item<double>()) : next;

    const at::Tensor moved = sent_to(x_.device(), accepted).unsqueeze(1);
    time_ = at::where(accepted, new_time, time_);
    x_ = at::where(moved, result, x_);
    const bool known_slope = method_.ends_with_slope() || config_.as_torchdiffeq;
    if (known_slope || (time_ < end_).any().item<bool>())
      slope_ = at::where(moved, known_slope ? slopes.back() : evaluate(time_, x_), slope_);

    at::Tensor factor = (0.9 * at::pow(ratio.clamp_min(1e-38), -1.0 / method_.order)).clamp(0.2, 10);
    if (config_.as_torchdiffeq) factor = at::where(ratio < 1, factor.clamp_min(1), factor);
    return step * factor;
  }

  // The state at the end, from the polynomial of degree 4 through both ends of the step, its middle and the
  // slopes at its ends.
  at::Tensor interpolated(const at::Tensor& next, const std::vector<at::Tensor>& slopes, double step) const {
    const double share = (end_ - time_.item<double>()) / step;
    const at::Tensor middle = along(x_, slopes, method_.middle, step);
    const at::Tensor rise = slopes.front() * step, last = slopes.back() * step;
    const at::Tensor fourth = 2 * (last - rise) - 8 * (next + x_) + 16 * middle;
    const at::Tensor third = 5 * rise - 3 * last + 18 * x_ + 14 * next - 32 * middle;
    const at::Tensor second = last - 4 * rise - 11 * x_ - 5 * next + 16 * middle;
    return x_ + share * (rise + share * (second + share * (third + share * fourth)));
  }

  const Flow& flow_;
  const OdeConfig& config_;
  const RungeKutta& method_;
  at::Tensor start_;
  int64_t rows_;  // that have step sizes of their own
  double end_;
  at::Tensor time_;       // [rows]
  at::Tensor x_, slope_;  // [rows, values of a row]
  OdeSolution solution_;
};

}  // namespace

OdeWork& OdeWork::operator+=(const OdeWork& more) {
  evaluations += more.evaluations;
  steps += more.steps;
  rejected += more.rejected;
  return *this;
}

void describe(Schema& s, OdeConfig& c) {
  s.option("method", c.method, "of solving; from adaptive_heun on they choose their own steps")
      .one_of(runge_kutta_names());
  s.option("steps", c.steps, "of a method that does not choose its own").at_least(1);
  s.option("grid", c.grid, "where the steps are; epss: 5, 6, 7, 10, 12 or 16 of them, most of them early")
      .one_of({"uniform", "epss"});
  s.option("times", c.times, "a grid of one's own, from 0 to 1").at_least(0).at_most(1);
  s.option("sway", c.sway, "below 0: more steps early, above: late")
      .at_least(-1)
      .at_most(2 / (std::numbers::pi - 2));
  s.option("absolute_tolerance", c.absolute_tolerance, "of a method that chooses its steps").at_least(0);
  s.option("relative_tolerance", c.relative_tolerance, "likewise, as a share of the value").at_least(0);
  s.option("most_steps", c.most_steps, "that such a method may take").at_least(1);
  s.option("as_torchdiffeq", c.as_torchdiffeq, "one step size for the whole batch, see docs/differences.md");
}

std::vector<double> time_points(const OdeConfig& config) {
  std::vector<double> times = unbent_times(config);
  require(times.size() >= 2 && times.front() == 0 && times.back() == 1,
          "[ode] expected times from 0 to 1, got {} of them from {} to {}", times.size(),
          times.empty() ? 0 : times.front(), times.empty() ? 0 : times.back());
  for (double& t : times) t += config.sway * (std::cos(std::numbers::pi / 2 * t) - 1 + t);
  times.back() = 1;
  for (size_t i = 0; i + 1 < times.size(); ++i)
    require(times[i] < times[i + 1], "[ode] expected rising times, got {} and then {}", times[i],
            times[i + 1]);
  return times;
}

OdeSolution solve(const Flow& flow, const at::Tensor& start, const std::vector<double>& times,
                  const OdeConfig& config) {
  require(times.size() >= 2, "[ode] expected two times or more, got {}", times.size());
  const RungeKutta& method = runge_kutta(config.method);
  if (!method.adaptive()) return solve_fixed(flow, start, times, method);
  return AdaptiveSolver(flow, start, times.back(), config).solve(times.front());
}

OdeSolution solve(const Flow& flow, const at::Tensor& start, const OdeConfig& config) {
  return solve(flow, start, time_points(config), config);
}

}  // namespace melete

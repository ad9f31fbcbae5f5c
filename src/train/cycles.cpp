#include "train/cycles.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "config/schema.h"

namespace melete {

void describe(Schema& s, OneCycleConfig& c) {
  s.option("rising_share", c.rising_share, "share of the steps in which the rate rises")
      .at_least(0)
      .at_most(1);
  s.option("shape", c.shape, "of the rise and the fall").one_of({"cosine", "linear"});
  s.option("start_divisor", c.start_divisor, "it begins with the learning rate divided by this").at_least(1);
  s.option("end_divisor", c.end_divisor, "it ends with what it began with, divided by this").at_least(1);
  s.option("three_parts", c.three_parts, "it falls to its beginning as fast as it rose, and then to its end");
  s.option("cycle_momentum", c.cycle_momentum, "beta1 falls while the rate rises, and rises while it falls");
  s.option("low_momentum", c.low_momentum, "beta1 where the rate is highest").at_least(0).at_most(0.9999);
  s.option("high_momentum", c.high_momentum, "beta1 where the rate is lowest").at_least(0).at_most(0.9999);
}

void describe(Schema& s, CyclicConfig& c) {
  s.option("up_steps", c.up_steps, "from the minimum to the learning rate").at_least(1).unit("steps");
  s.option("down_steps", c.down_steps, "and back; 0: as many as up").at_least(0).unit("steps");
  s.option("mode", c.mode, "all as high as the first, half as high each time, or by gamma a step")
      .one_of({"triangular", "triangular2", "exp_range"});
  s.option("gamma", c.gamma, "exp_range: the height's factor a step").at_least(0);
  s.option("cycle_momentum", c.cycle_momentum, "beta1 falls while the rate rises, and rises while it falls");
  s.option("low_momentum", c.low_momentum, "beta1 where the rate is highest").at_least(0).at_most(0.9999);
  s.option("high_momentum", c.high_momentum, "beta1 where the rate is lowest").at_least(0).at_most(0.9999);
}

CyclePoint one_cycle(const OneCycleConfig& config, double learning_rate, int64_t total_steps, int64_t step) {
  const double begin = learning_rate / config.start_divisor, end = begin / config.end_divisor;
  const double total = static_cast<double>(total_steps), risen = config.rising_share * total;
  const double low = config.low_momentum, high = config.high_momentum;
  struct Part {
    double last_step;
    CyclePoint from, to;
  };
  std::vector<Part> parts = {{risen - 1, {begin, high}, {learning_rate, low}}};
  if (config.three_parts) parts.push_back({2 * risen - 2, {learning_rate, low}, {begin, high}});
  parts.push_back({total - 1, parts.back().to, {end, high}});

  const double now = std::min(static_cast<double>(step), total - 1);
  double first_step = 0;
  size_t index = 0;
  for (; index + 1 < parts.size() && now > parts[index].last_step; ++index)
    first_step = parts[index].last_step;
  const Part& part = parts[index];
  // A part without length has only its end.
  const double length = part.last_step - first_step;
  const double position = length == 0 ? 1 : (now - first_step) / length;
  const auto between = [&](double from, double to) {
    if (config.shape == "linear") return from + (to - from) * position;
    return to + (from - to) / 2 * (1 + std::cos(std::numbers::pi * position));
  };
  return {between(part.from.rate, part.to.rate), between(part.from.momentum, part.to.momentum)};
}

CyclePoint cyclic(const CyclicConfig& config, double low_rate, double learning_rate, int64_t step) {
  const int64_t down = config.down_steps > 0 ? config.down_steps : config.up_steps;
  const int64_t whole = config.up_steps + down, cycle = step / whole, within = step % whole;
  const double risen = within <= config.up_steps
                           ? static_cast<double>(within) / static_cast<double>(config.up_steps)
                           : static_cast<double>(whole - within) / static_cast<double>(down);
  double height = 1;
  if (config.mode == "triangular2") height = std::pow(0.5, static_cast<double>(cycle));
  if (config.mode == "exp_range") height = std::pow(config.gamma, static_cast<double>(step));
  return {low_rate + (learning_rate - low_rate) * risen * height,
          config.high_momentum - (config.high_momentum - config.low_momentum) * risen * height};
}

}  // namespace melete

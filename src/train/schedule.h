// The learning rate as a function of the step (counted from 0): a linear warm-up that reaches the curve's
// first rate exactly at its last step, then one of eleven curves. Those of PyTorch's names give its rates.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "train/cycles.h"

namespace melete {

class Schema;
class UpstreamSchedule;

struct ScheduleConfig {
  int64_t warmup_steps = 0;
  double warmup_from = 0;         // the rate that the warm-up's line begins at, before its first step
  std::string kind = "constant";  // see schedule_kinds()
  // linear, cosine, polynomial, one_cycle: steps from the end of warm-up to the end of the curve; 0: to the
  // run's end
  int64_t decay_steps = 0;
  double minimum = 0;                    // no curve goes below this rate; cyclic: where it turns
  int64_t period = 1000;                 // cosine_restarts: length of the first period
  int64_t period_growth = 1;             // cosine_restarts: each period is this many times the one before
  double gamma = 0.1;                    // exponential: factor a step; step, multi_step: factor of a drop
  int64_t step_size = 1000;              // step: steps between two drops
  std::vector<int64_t> milestones = {};  // multi_step: where it drops; one that is listed twice drops twice
  double power = 1;                      // polynomial: of the share of the way that is left
  // "1000:0.5": from that step after the warm-up, so much of the learning rate
  std::vector<std::string> table = {};
  bool table_in_lines = false;  // straight lines between the table's points instead of stairs
  OneCycleConfig one_cycle = {};
  CyclicConfig cyclic = {};
  bool upstream_warmup = false;  // audiolm-pytorch's sequence of rates, see train/upstream_schedule.h
};

void describe(Schema& schema, ScheduleConfig& config);

const std::vector<std::string>& schedule_kinds();

class Schedule {
 public:
  Schedule(const ScheduleConfig& config, double learning_rate, int64_t run_steps);
  ~Schedule();
  Schedule(Schedule&&) noexcept;
  Schedule& operator=(Schedule&&) noexcept;

  double rate(int64_t step);
  // What the optimiser's beta1 is in that step, where the curve moves it.
  std::optional<double> momentum(int64_t step) const;

 private:
  double curve(int64_t steps_after_warmup) const;
  double half_cosine(double position) const;  // from the learning rate at 0 to the minimum at 1
  double restarts(int64_t steps_after_warmup) const;
  double drops(double count) const;  // the learning rate after so many of them
  double tabled(int64_t steps_after_warmup) const;

  ScheduleConfig config_;
  double learning_rate_;
  double first_rate_;  // of the curve, where the warm-up leads
  int64_t decay_steps_;
  std::vector<std::pair<int64_t, double>> table_;  // in order of steps, the first is of step 0
  std::unique_ptr<UpstreamSchedule> upstream_;
};

}  // namespace melete

// The learning rate as a function of the step (counted from 0): a linear warm-up that reaches the rate
// exactly at its last step, then one of six curves.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace melete {

class Schema;
class UpstreamSchedule;

struct ScheduleConfig {
  int64_t warmup_steps = 0;
  std::string kind = "constant";  // constant, linear, cosine, cosine_restarts, exponential, step
  int64_t decay_steps =
      0;                  // linear, cosine: steps from the end of warm-up to the minimum; 0: to the run's end
  double minimum = 0;     // no curve goes below this rate
  int64_t period = 1000;  // cosine_restarts: length of the first period
  int64_t period_growth = 1;     // cosine_restarts: each period is this many times the one before
  double gamma = 0.1;            // exponential: factor a step; step: factor every step_size
  int64_t step_size = 1000;      // step: steps between two drops
  bool upstream_warmup = false;  // audiolm-pytorch's sequence of rates, see train/upstream_schedule.h
};

void describe(Schema& schema, ScheduleConfig& config);

class Schedule {
 public:
  Schedule(const ScheduleConfig& config, double learning_rate, int64_t run_steps);
  ~Schedule();
  Schedule(Schedule&&) noexcept;
  Schedule& operator=(Schedule&&) noexcept;

  double rate(int64_t step);

 private:
  double curve(int64_t steps_after_warmup) const;

  ScheduleConfig config_;
  double learning_rate_;
  int64_t decay_steps_;
  std::unique_ptr<UpstreamSchedule> upstream_;
};

}  // namespace melete

#include "systems/voicebox/upstream_schedule.h"

namespace melete::voicebox_pytorch {

TrainerSchedule::TrainerSchedule(const TrainerRates& rates)
    : rates_(rates),
      cosine_("CosineAnnealingLR", {{"T_max", rates.run_steps}}),
      in_force_(rates.learning_rate) {}

double TrainerSchedule::rate(int64_t step) {
  if (step < step_) {
    step_ = -1;
    in_force_ = rates_.learning_rate;
  }
  while (step_ < step) {
    ++step_;
    const auto warmup = static_cast<double>(rates_.warmup_steps);
    if (step_ < rates_.warmup_steps)
      in_force_ = rates_.first_rate +
                  (rates_.learning_rate - rates_.first_rate) * static_cast<double>(step_) / warmup;
    else
      in_force_ = cosine_.rate(step_ - rates_.warmup_steps + 1, in_force_, rates_.learning_rate);
  }
  return in_force_;
}

}  // namespace melete::voicebox_pytorch

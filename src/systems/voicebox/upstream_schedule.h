// The learning rates that VoiceBoxTrainer really uses: its warm-up never reaches the rate that was asked for,
// and the cosine after it goes on from where the warm-up stopped, by a recursion over all of the run's steps.
#pragma once

#include <cstdint>

#include "train/upstream_schedule.h"

namespace melete::voicebox_pytorch {

struct TrainerRates {
  double learning_rate = 3e-4, first_rate = 1e-5;
  int64_t warmup_steps = 0;
  int64_t run_steps = 1;
};

class TrainerSchedule {
 public:
  explicit TrainerSchedule(const TrainerRates& rates);
  double rate(int64_t step);  // in force in that optimiser step, counted from 0

 private:
  TrainerRates rates_;
  TorchScheduler cosine_;
  int64_t step_ = -1;  // that `in_force_` belongs to
  double in_force_ = 0;
};

}  // namespace melete::voicebox_pytorch

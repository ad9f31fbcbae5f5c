// What a training costs on this machine, before it is started: parameters, memory, disk, and time from a few
// steps of the real trainer on a batch of noise.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "measure/plan.h"
#include "train/task.h"

namespace melete {

struct TrainingCost {
  std::vector<std::pair<std::string, int64_t>> parameters;  // by phase
  int64_t kept_bytes = 0;                                   // weights, gradients, moments, average
  int64_t peak_bytes = 0;        // most memory of this process in a step; 0 where the system does not say
  int64_t checkpoint_bytes = 0;  // of one
  int64_t checkpoints = 0;       // that are on disk in the end
  double step_seconds = 0;       // median of the timed steps
  int64_t timed_steps = 0;
  double steps_seconds = 0;  // all of them, without validation and samples
  double items = 0;          // that all steps read, of all phases with batches of their own
  double passes = 0;         // over the data; 0: not known
};

// Moves the task's weights: for a task that is not trained afterwards. The recipe is settled; feed: what
// training would read.
TrainingCost training_cost(Recipe& recipe, Task& task, const Feed& feed);

}  // namespace melete

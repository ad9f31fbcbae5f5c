// Settings that every phase of every task has.
#pragma once

#include <string>

#include "train/task.h"

namespace torch::nn {
class Module;
}

namespace melete {

struct PhaseConfig {
  OptimiserConfig optimiser;
  ScheduleConfig schedule;
  double clip_norm = 0;  // 0: none
  std::vector<std::string> frozen;
};
void describe(Schema& schema, PhaseConfig& config);

// A phase with these settings; groups and loss are still to be set.
Phase make_phase(const std::string& name, const PhaseConfig& config);

// Takes the parameters that a phase's patterns name out of its groups, and groups that are empty then with
// them. A pattern that names none is an Error.
void leave_out_frozen(Phase& phase);

// Names as the whole model has them: `prefix` is where the module stands in it.
NamedTensors parameters_of(const torch::nn::Module& module, const std::string& prefix = "");

}  // namespace melete

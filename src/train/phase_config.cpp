#include "train/phase_config.h"

#include <torch/nn/module.h>

#include "config/schema.h"

namespace melete {

void describe(Schema& s, PhaseConfig& c) {
  s.section("optimiser", c.optimiser, "how the weights move");
  s.section("schedule", c.schedule, "learning rate over the run");
  s.option("clip_norm", c.clip_norm, "longest gradient; 0: no limit").at_least(0);
  s.option("frozen", c.frozen, "parameters that do not move: names, * stands for anything (codec.encoder.*)");
}

Phase make_phase(const std::string& name, const PhaseConfig& config) {
  Phase phase;
  phase.name = name;
  phase.optimiser = config.optimiser;
  phase.schedule = config.schedule;
  phase.clip_norm = config.clip_norm;
  phase.frozen = config.frozen;
  return phase;
}

NamedTensors parameters_of(const torch::nn::Module& module, const std::string& prefix) {
  NamedTensors parameters;
  for (const auto& item : module.named_parameters())
    parameters.emplace_back(prefix + item.key(), item.value());
  return parameters;
}

}  // namespace melete

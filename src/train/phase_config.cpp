#include "train/phase_config.h"

#include <fnmatch.h>
#include <torch/nn/module.h>

#include <algorithm>

#include "config/schema.h"
#include "core/base/error.h"

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

void leave_out_frozen(Phase& phase) {
  const auto names = [](const std::string& pattern, const auto& parameter) {
    return ::fnmatch(pattern.c_str(), parameter.first.c_str(), 0) == 0;
  };
  // All are looked for before any goes: two patterns may name the same.
  for (const std::string& pattern : phase.frozen)
    require(std::any_of(phase.groups.begin(), phase.groups.end(),
                        [&](const ParameterGroup& group) {
                          return std::any_of(
                              group.parameters.begin(), group.parameters.end(),
                              [&](const auto& parameter) { return names(pattern, parameter); });
                        }),
            "[frozen] no parameter of phase {} is called `{}`", phase.name, pattern);
  for (ParameterGroup& group : phase.groups)
    std::erase_if(group.parameters, [&](const auto& parameter) {
      return std::any_of(phase.frozen.begin(), phase.frozen.end(),
                         [&](const std::string& pattern) { return names(pattern, parameter); });
    });
  std::erase_if(phase.groups, [](const ParameterGroup& group) { return group.parameters.empty(); });
  require(!phase.groups.empty(), "[frozen] nothing of phase {} is left to train", phase.name);
}

NamedTensors parameters_of(const torch::nn::Module& module, const std::string& prefix) {
  NamedTensors parameters;
  for (const auto& item : module.named_parameters())
    parameters.emplace_back(prefix + item.key(), item.value());
  return parameters;
}

}  // namespace melete

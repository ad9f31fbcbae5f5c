// Training the duration predictor: one phase, mean absolute error of durations that it does not see.
#pragma once

#include <nlohmann/json.hpp>

#include "systems/voicebox/duration_predictor.h"
#include "train/phase_config.h"

namespace melete::voicebox {

struct DurationTaskConfig {
  PhaseConfig phase;
  DurationLossConfig hiding;

  DurationTaskConfig();
};
void describe(Schema& schema, DurationTaskConfig& config);

// Batches have "phonemes" int64 [items, n] and "durations" float [items, n].
class DurationTask : public Task {
 public:
  DurationTask(const DurationConfig& model, const DurationTaskConfig& config,
               nlohmann::ordered_json whole_config);

  std::string name() const override { return "duration"; }
  torch::nn::Module& model() override { return *model_; }
  std::vector<Phase> phases() override;
  nlohmann::ordered_json config() const override { return whole_config_; }
  // With everything hidden, as for a text without a voice; beside it the error of always saying the mean.
  Losses validate(const Batch& batch, const StepContext& context) override;
  void write_samples(const Batch& batch, const std::string& label, SampleWriter& writer) override;

 private:
  DurationTaskConfig config_;
  nlohmann::ordered_json whole_config_;
  DurationPredictor model_;
};

}  // namespace melete::voicebox

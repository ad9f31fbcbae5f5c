// Training the aligner: one phase; the forward-sum loss, and later the binarisation loss beside it.
#pragma once

#include <nlohmann/json.hpp>

#include "systems/voicebox/aligner.h"
#include "train/phase_config.h"

namespace melete::voicebox {

struct AlignerTaskConfig {
  PhaseConfig phase;
  double binarisation_weight = 1;
  int64_t binarisation_from = 500;  // step; before it the soft alignment has to find its way
  int64_t prior_until = 400;        // step; up to it the diagonal prior gives way, evenly

  AlignerTaskConfig();
};
void describe(Schema& schema, AlignerTaskConfig& config);

// Batches have "mel" [items, frames, mels] and "phonemes" int64 [items, n], both with their lengths.
class AlignerTask : public Task {
 public:
  // lexicon: as kept_lexicon() has it, for the checkpoints
  AlignerTask(const AlignerConfig& model, const AlignerTaskConfig& config,
              nlohmann::ordered_json whole_config, at::Tensor lexicon = {});

  std::string name() const override { return "aligner"; }
  torch::nn::Module& model() override { return *model_; }
  std::vector<Phase> phases() override;
  nlohmann::ordered_json config() const override { return whole_config_; }
  Losses validate(const Batch& batch, const StepContext& context) override;
  void write_samples(const Batch& batch, const std::string& label, SampleWriter& writer) override;
  void save_state(TensorMap& tensors) const override {
    if (lexicon_.defined()) tensors["phonemizer.lexicon"] = lexicon_;
  }
  // The whole loss gains a part on the way.
  MainFigure main_figure() const override { return {"forward_sum", false}; }

 private:
  Losses losses(const Batch& batch, bool binarised, double prior_share, bool with_chance);

  AlignerTaskConfig config_;
  nlohmann::ordered_json whole_config_;
  at::Tensor lexicon_;
  Aligner model_;
  at::Tensor guessed_;  // forward-sum loss of the first batch, were all phonemes equally like all frames
};

}  // namespace melete::voicebox

// Training Voicebox: one phase, flow matching over frames.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>

#include "roles/audio_features.h"
#include "systems/voicebox/distillation.h"
#include "systems/voicebox/flow_matching.h"
#include "systems/voicebox/sampling.h"
#include "train/phase_config.h"

namespace melete::voicebox {

// Frames have any scale; the network sees them around 0 with a deviation of 1.
struct FrameScale {
  double mean = 0, deviation = 0;  // deviation 0: not measured yet

  at::Tensor apply(const at::Tensor& frames) const { return (frames - mean) / deviation; }
  at::Tensor undo(const at::Tensor& frames) const { return frames * deviation + mean; }
};

struct TaskConfig {
  PhaseConfig phase;
  FlowMatchingConfig flow;
  FlowSampling sampling;            // of samples
  DistillationConfig distillation;  // where there is a teacher

  TaskConfig();
};
void describe(Schema& schema, TaskConfig& config);

// Batches have "frames" [items, n, frame_dim] with their lengths and, where the model is told, "tokens"
// int64: one a frame, or at a pace of their own.
class VoiceboxTask : public Task {
 public:
  // features: makes samples audible; null: there are none. teacher: whose sampling is to be learned; null: it
  // learns from speech alone. lexicon: as kept_lexicon() has it, for the checkpoints
  VoiceboxTask(const VoiceboxConfig& model, const TaskConfig& config, const FrameScale& scale,
               std::shared_ptr<const AudioFeatures> features, nlohmann::ordered_json whole_config,
               Voicebox teacher = nullptr, at::Tensor lexicon = {});

  std::string name() const override { return "voicebox"; }
  torch::nn::Module& model() override { return *model_; }
  std::vector<Phase> phases() override;
  nlohmann::ordered_json config() const override { return whole_config_; }
  Losses validate(const Batch& batch, const StepContext& context) override;
  void write_samples(const Batch& batch, const std::string& label, SampleWriter& writer) override;
  void save_state(TensorMap& tensors) const override {
    if (lexicon_.defined()) tensors["phonemizer.lexicon"] = lexicon_;
  }
  // The flow's own loss is beside what the draft leaves open, and rises as that gets less.
  MainFigure main_figure() const override { return {model_->drafter.is_empty() ? "loss" : "draft", false}; }

  Voicebox& network() { return model_; }

 private:
  FlowBatch flow_batch(const Batch& batch) const;
  Losses validate_distilled(const Batch& batch, const StepContext& context);
  Voicebox& teacher_on(at::Device device);
  at::Tensor hidden_in_sampling(const FlowBatch& flow) const;  // bool [batch, frames]
  at::Tensor in_voice_of(const FlowBatch& flow, const at::Tensor& lengths, int64_t row, int64_t voice);

  TaskConfig config_;
  FrameScale scale_;
  std::shared_ptr<const AudioFeatures> features_;
  nlohmann::ordered_json whole_config_;
  Voicebox model_;
  Voicebox teacher_{nullptr};
  at::Tensor lexicon_;
};

}  // namespace melete::voicebox

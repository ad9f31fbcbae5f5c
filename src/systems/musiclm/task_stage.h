// Training MusicLM's stages: AudioLM's, told what the joint embedding hears in the sound. The codebooks that
// make codes of it, and the table of vectors for those codes, are trained with the stage.
#pragma once

#include <string>

#include "systems/audiolm/task.h"
#include "systems/musiclm/embed_quantizer.h"

namespace melete::musiclm {

// Where a stage and its condition stand in the model of a run.
constexpr const char* kStagePlace = "stage.";
constexpr const char* kConditionPlace = "condition.";

// Base: AudioLM's task of the stage. Batches have its columns and "joint" [items, dim], unit vectors.
template <class Base>
class MusicStageTask : public Base {
 public:
  template <class Model>
  MusicStageTask(const std::string& stage, const Model& model, const EmbedQuantizerConfig& condition,
                 const StageTaskConfig& config, nlohmann::ordered_json whole_config)
      : Base(model, config, std::move(whole_config)),
        stage_name_(stage),
        condition_(condition),
        whole_(std::make_shared<Whole>()) {
    whole_->register_module("stage", this->transformer());
    whole_->register_module("condition", condition_);
  }

  std::string name() const override { return "musiclm-" + stage_name_; }
  torch::nn::Module& model() override { return *whole_; }
  // Codebooks are moving averages already.
  bool averaged(const std::string& name) const override { return !name.starts_with("condition.quantizer."); }
  EmbedQuantizer& condition() { return condition_; }
  // AudioLM's samplers are told what the stage is told.
  void write_samples(const Batch& batch, const std::string& label, SampleWriter& writer) override {
    const at::NoGradGuard no_grad;
    Batch told = batch;
    told.set("text_features", condition_->condition(condition_->codes(batch["joint"]), stage_name_));
    Base::write_samples(told, label, writer);
  }

 protected:
  StageInput input(const Batch& batch, const StepContext& context) override {
    StageInput result;
    result.semantic = batch.find_on_host("semantic");
    result.acoustic = batch.find_on_host("acoustic");
    const at::Tensor codes = condition_->codes(batch["joint"], context.training ? context.draws : nullptr);
    result.condition = masked_condition(condition_->condition(codes, stage_name_));
    result.forget = context.training;
    result.draws = context.draws;
    return result;
  }

 private:
  struct Whole : torch::nn::Module {};

  std::string stage_name_;
  EmbedQuantizer condition_;
  std::shared_ptr<Whole> whole_;
};

}  // namespace melete::musiclm

// Training AudioLM's three stages: one task each, alike but for the model and its loss.
#pragma once

#include <nlohmann/json.hpp>

#include "systems/audiolm/stage_losses.h"
#include "train/phase_config.h"

namespace melete {

struct StageTaskConfig {
  PhaseConfig phase;
  StageLossConfig loss;

  StageTaskConfig();
};
void describe(Schema& schema, StageTaskConfig& config);

// Turns what a model makes of a batch into sound for people; null: no samples.
class StageSampler {
 public:
  virtual ~StageSampler() = default;
  virtual void write(const Batch& batch, const std::string& label, SampleWriter& writer) = 0;
};

class StageTask : public Task {
 public:
  StageTask(const StageTaskConfig& config, nlohmann::ordered_json whole_config);

  virtual StageImpl& stage() = 0;
  torch::nn::Module& model() override { return stage(); }
  std::vector<Phase> phases() override;
  nlohmann::ordered_json config() const override { return whole_config_; }
  Losses validate(const Batch& batch, const StepContext& context) override;
  void write_samples(const Batch& batch, const std::string& label, SampleWriter& writer) override;

  void set_sampler(std::unique_ptr<StageSampler> sampler) { sampler_ = std::move(sampler); }

 protected:
  // What the model sees of a batch; the end of a sequence is learned in training and measured in validation.
  virtual StageInput input(const Batch& batch, const StepContext& context);
  virtual StageLosses losses(const StageInput& input) = 0;

  StageTaskConfig config_;

 private:
  nlohmann::ordered_json whole_config_;
  std::unique_ptr<StageSampler> sampler_;
};

class SemanticTask : public StageTask {
 public:
  SemanticTask(const SemanticConfig& model, const StageTaskConfig& config,
               nlohmann::ordered_json whole_config)
      : StageTask(config, std::move(whole_config)), model_(model) {}
  std::string name() const override { return "semantic"; }
  StageImpl& stage() override { return *model_; }
  std::map<std::string, double> chance_levels() const override;
  SemanticTransformer& transformer() { return model_; }

 protected:
  StageLosses losses(const StageInput& given) override {
    return semantic_losses(model_, given, config_.loss);
  }

 private:
  SemanticTransformer model_;
};

class CoarseTask : public StageTask {
 public:
  CoarseTask(const CoarseConfig& model, const StageTaskConfig& config, nlohmann::ordered_json whole_config)
      : StageTask(config, std::move(whole_config)), model_(model) {}
  std::string name() const override { return "coarse"; }
  StageImpl& stage() override { return *model_; }
  std::map<std::string, double> chance_levels() const override;
  CoarseTransformer& transformer() { return model_; }

 protected:
  StageLosses losses(const StageInput& given) override { return coarse_losses(model_, given, config_.loss); }

 private:
  CoarseTransformer model_;
};

class FineTask : public StageTask {
 public:
  FineTask(const FineConfig& model, const StageTaskConfig& config, nlohmann::ordered_json whole_config)
      : StageTask(config, std::move(whole_config)), model_(model) {}
  std::string name() const override { return "fine"; }
  StageImpl& stage() override { return *model_; }
  std::map<std::string, double> chance_levels() const override;
  FineTransformer& transformer() { return model_; }

 protected:
  StageLosses losses(const StageInput& given) override { return fine_losses(model_, given, config_.loss); }

 private:
  FineTransformer model_;
};

}  // namespace melete

// Training Vocos: a generator phase on spectral losses and, where it is adversarial, a discriminator phase.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "losses/spectral.h"
#include "nn/mel_frames.h"
#include "pretrained/vocos.h"
#include "systems/soundstream/gan.h"
#include "train/phase_config.h"

namespace melete::vocos {

struct LossConfig {
  double mel_weight = 45;  // of the distance between mel frames, those it was given
  double scales_weight =
      1e-3;  // of the multi-scale mel loss, a sum in the thousands, which tells it about phase
  double adversarial_weight = 1;
  double feature_weight = 2;
  MelLossConfig scales;
};
void describe(Schema& schema, LossConfig& config);

struct TaskConfig {
  VocosConfig model;
  MelFramesConfig mel;
  bool adversarial = true;  // false: no discriminators, spectral losses alone
  std::vector<double> discriminator_scales = {1, 0.5};
  MultiScaleDiscriminatorConfig multi_scale;
  StftDiscriminatorConfig stft;
  LossConfig loss;
  PhaseConfig generator, discriminator;

  TaskConfig();
  void settle();  // what of the model follows from its frames
};
void describe(Schema& schema, TaskConfig& config);

struct VocosGanImpl : torch::nn::Module {
  explicit VocosGanImpl(const TaskConfig& config);

  Vocos vocoder{nullptr};
  Discriminators discriminators{nullptr};  // empty where it is not adversarial
};
TORCH_MODULE(VocosGan);

// Batches have "wave" [items, samples].
class VocosTask : public Task {
 public:
  VocosTask(const TaskConfig& config, nlohmann::ordered_json whole_config);

  std::string name() const override { return "vocos"; }
  torch::nn::Module& model() override { return *gan_; }
  std::vector<Phase> phases() override;
  nlohmann::ordered_json config() const override { return whole_config_; }
  Losses validate(const Batch& batch, const StepContext& context) override;
  void write_samples(const Batch& batch, const std::string& label, SampleWriter& writer) override;
  bool averaged(const std::string& name) const override { return name.starts_with("vocoder."); }
  std::map<std::string, double> chance_levels() const override;
  MainFigure main_figure() const override { return {"mel_distance", false}; }

 private:
  at::Tensor copy(const at::Tensor& wave);  // through its mel frames and back
  Losses generator_losses(const at::Tensor& wave);
  Losses discriminator_losses(const at::Tensor& wave);
  // The spectral losses by name, and their weighted sum.
  Losses spectral_losses(const at::Tensor& wave, const at::Tensor& fake);

  TaskConfig config_;
  nlohmann::ordered_json whole_config_;
  MelFrames mel_;
  MultiScaleMelLoss scales_loss_;
  VocosGan gan_;
};

}  // namespace melete::vocos

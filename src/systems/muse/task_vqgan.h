// Training a VQ-GAN autoencoder: a generator phase and a discriminator phase on the one training loop.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "config/schema.h"
#include "pretrained/vgg16.h"
#include "systems/muse/vqgan.h"
#include "train/phase_config.h"

namespace melete::muse {

struct VqganTaskConfig {
  VqganConfig model;
  PhaseConfig generator;
  PhaseConfig discriminator;
  int64_t gradient_penalty_every = 4;  // steps; 0: never
  // Train the discriminator on batches of its own, as muse-maskgit-pytorch does. By default it trains on what
  // the generator's phase has just made and judged, which saves a pass of each.
  bool own_discriminator_batches = false;

  VqganTaskConfig();
};
void describe(Schema& schema, VqganTaskConfig& config);

// VGG as the model asks it: grey pictures become colour ones, and as_upstream leaves out ImageNet's mean and
// spread. It follows the pictures to their device. vgg may be empty.
Perception perception_of(Vgg16 vgg, bool as_upstream);

// Batches have "picture" [items, channels, height, width].
class VqganTask : public Task {
 public:
  // vgg may be empty: there is no perceptual loss.
  VqganTask(const VqganTaskConfig& config, Vgg16 vgg, nlohmann::ordered_json whole_config);

  std::string name() const override;
  torch::nn::Module& model() override { return *vqgan_; }
  std::vector<Phase> phases() override;
  nlohmann::ordered_json config() const override { return whole_config_; }
  Losses validate(const Batch& batch, const StepContext& context) override;
  void write_samples(const Batch& batch, const std::string& label, SampleWriter& writer) override;
  bool averaged(const std::string& name) const override;
  std::map<std::string, double> chance_levels() const override;
  MainFigure main_figure() const override { return {"psnr", true}; }

  Vqgan& vqgan() { return vqgan_; }

 private:
  Losses generator_losses(const Batch& batch, const StepContext& context);
  Losses discriminator_losses(const Batch& batch, const StepContext& context);

  VqganTaskConfig config_;
  nlohmann::ordered_json whole_config_;
  Vqgan vqgan_;
  Perception perceive_;  // no part of the model: it neither moves nor goes into checkpoints
  std::vector<VqganImpl::Contest> contests_;  // one a micro-batch of this step
};

}  // namespace melete::muse

// Training a SoundStream codec: a generator phase and a discriminator phase on the one training loop.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "config/schema.h"
#include "systems/soundstream/gan.h"
#include "train/phase_config.h"

namespace melete {

struct SoundStreamTaskConfig {
  SoundStreamGanConfig model;
  PhaseConfig generator;
  PhaseConfig discriminator;
  int64_t gradient_penalty_every = 4;  // steps; 0: never
  // Train the discriminators on batches of their own, as audiolm-pytorch does. By default they train on what
  // the generator's phase has just made and judged, which saves a pass of the codec and two of the
  // discriminators.
  bool own_discriminator_batches = false;
  // Until this step the spectra and the wave alone teach the codec; a step then costs about half.
  int64_t discriminators_from = 0;

  SoundStreamTaskConfig();
};
void describe(Schema& schema, SoundStreamTaskConfig& config);

class SoundStreamTask : public Task {
 public:
  SoundStreamTask(const SoundStreamTaskConfig& config, nlohmann::ordered_json whole_config);

  std::string name() const override { return "soundstream"; }
  torch::nn::Module& model() override { return *gan_; }
  std::vector<Phase> phases() override;
  nlohmann::ordered_json config() const override { return whole_config_; }
  Losses validate(const Batch& batch, const StepContext& context) override;
  void write_samples(const Batch& batch, const std::string& label, SampleWriter& writer) override;
  bool averaged(const std::string& name) const override;
  std::map<std::string, double> chance_levels() const override;
  MainFigure main_figure() const override { return {"mel_distance", false}; }

  SoundStreamGan& gan() { return gan_; }

 private:
  bool judged(int64_t step) const;  // whether the discriminators have a say
  Losses generator_losses(const Batch& batch, const StepContext& context);
  Losses discriminator_losses(const Batch& batch, const StepContext& context);

  SoundStreamTaskConfig config_;
  nlohmann::ordered_json whole_config_;
  SoundStreamGan gan_;
  std::vector<RealAndFake> pairs_;  // one a micro-batch of this step
};

}  // namespace melete

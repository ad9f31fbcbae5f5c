// SoundStream with what trains it: discriminators and losses.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/pimpl.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "losses/spectral.h"
#include "models/multi_scale_discriminator.h"
#include "models/soundstream.h"
#include "models/stft_discriminator.h"

namespace melete {

struct SoundStreamLossConfig {
  double reconstruction_weight = 1;
  double mel_weight = 1e-5;
  double adversarial_weight = 1;
  double feature_weight = 100;
  MelLossConfig mel;
};
void describe(Schema& schema, SoundStreamLossConfig& config);

struct SoundStreamGanConfig {
  SoundStreamConfig codec;
  std::vector<double> discriminator_scales = {1, 0.5, 0.25};  // each divides the rate of the one before
  MultiScaleDiscriminatorConfig multi_scale;
  StftDiscriminatorConfig stft;
  SoundStreamLossConfig loss;
};
void describe(Schema& schema, SoundStreamGanConfig& config);

using NamedLosses = std::vector<std::pair<std::string, at::Tensor>>;

struct DiscriminatorsImpl : torch::nn::Module {
  explicit DiscriminatorsImpl(const SoundStreamGanConfig& config);

  // Of wave [batch, channels, samples]: the STFT discriminator first, then every scale.
  std::vector<Judgement> forward(const at::Tensor& wave);

  // Hinge losses by name: "stft", "scale:1", "scale:0.5", ...; with gradient_penalty also
  // "stft_gradient_penalty", ... Real and fake waves are judged in one batch.
  NamedLosses losses(const at::Tensor& real, const at::Tensor& fake, bool gradient_penalty);

  StftDiscriminator stft{nullptr};
  torch::nn::ModuleList scales;

 private:
  at::Tensor downsample(const at::Tensor& wave, size_t scale) const;  // from the scale before

  std::vector<std::string> names_;
  std::vector<int64_t> factors_;
};
TORCH_MODULE(Discriminators);

struct SoundStreamGanImpl : torch::nn::Module {
  explicit SoundStreamGanImpl(const SoundStreamGanConfig& config);

  struct GeneratorLosses {
    at::Tensor total;
    NamedLosses named;  // unweighted: reconstruction, mel, adversarial, feature, commitment
    SoundStreamImpl::Output output;
  };
  // wave [batch, samples]; target: what should come out (denoising), else the wave itself.
  GeneratorLosses generator_losses(const at::Tensor& wave, Draws* draws,
                                   const std::optional<at::Tensor>& target = {},
                                   std::optional<bool> denoise = {});
  // The generator runs without gradient; `update` lets its codebooks follow here, too (audiolm-pytorch).
  NamedLosses discriminator_losses(const at::Tensor& wave, Draws* draws, bool gradient_penalty, bool update);

  const SoundStreamGanConfig& config() const { return config_; }

  SoundStream codec{nullptr};
  Discriminators discriminators{nullptr};

 private:
  SoundStreamGanConfig config_;
  MultiScaleMelLoss mel_loss_;
};
TORCH_MODULE(SoundStreamGan);

}  // namespace melete

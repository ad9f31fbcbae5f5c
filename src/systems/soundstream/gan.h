// SoundStream with what trains it: discriminators and losses.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/pimpl.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "losses/intelligibility.h"
#include "losses/spectral.h"
#include "nn/multi_scale_discriminator.h"
#include "nn/stft_discriminator.h"
#include "systems/soundstream/soundstream.h"

namespace melete {

struct SoundStreamLossConfig {
  double reconstruction_weight = 1;
  double mel_weight = 1e-5;
  double adversarial_weight = 1;
  double feature_weight = 100;
  // "squared": mean squared error of the wave. "relative": in dB beside the wave's own power, so that quiet
  // passages count as much as loud ones.
  std::string reconstruction = "squared";
  MelLossConfig mel;
  double root_spectrum_weight = 0;
  RootSpectrumLossConfig root_spectrum;
  double band_shape_weight = 0;
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

// Real and generated waves before the discriminators. When the generator's phase has judged them already, the
// discriminators' phase goes on from there and pays for no second forward pass.
struct RealAndFake {
  at::Tensor real, fake;                            // [batch, channels, samples], without gradient
  std::vector<Judgement> real_judged, fake_judged;  // empty when they have still to be judged

  void forget_judgements() { real_judged.clear(), fake_judged.clear(); }
};

struct DiscriminatorsImpl : torch::nn::Module {
  explicit DiscriminatorsImpl(const SoundStreamGanConfig& config);

  // Of wave [batch, channels, samples]: the STFT discriminator first, then every scale.
  std::vector<Judgement> forward(const at::Tensor& wave);

  // Hinge losses by name: "stft", "scale:1", "scale:0.5", ...; with gradient_penalty also
  // "stft_gradient_penalty", ...
  NamedLosses losses(const RealAndFake& pair, bool gradient_penalty);
  std::vector<std::string> names() const;  // of these

  StftDiscriminator stft{nullptr};
  torch::nn::ModuleList scales;

 private:
  at::Tensor downsample(const at::Tensor& wave, size_t scale) const;  // from the scale before
  // Logits of every discriminator for a wave, and the input that each one saw.
  struct Seen {
    at::Tensor input, logits;
  };
  std::vector<Seen> inputs_and_logits(const at::Tensor& wave);

  std::vector<std::string> names_;
  std::vector<int64_t> factors_;
};
TORCH_MODULE(Discriminators);

struct SoundStreamGanImpl : torch::nn::Module {
  explicit SoundStreamGanImpl(const SoundStreamGanConfig& config);

  struct GeneratorLosses {
    at::Tensor total;
    NamedLosses named;  // unweighted: reconstruction, mel, adversarial, feature, commitment; root_spectrum
    SoundStreamImpl::Output output;
  };
  // wave [batch, samples]; target: what should come out (denoising), else the wave itself. With `pair`,
  // the discriminators' view of both waves is kept there for their own phase. judged: false leaves the
  // discriminators out altogether.
  GeneratorLosses generator_losses(const at::Tensor& wave, Draws* draws,
                                   const std::optional<at::Tensor>& target = {},
                                   std::optional<bool> denoise = {}, RealAndFake* pair = nullptr,
                                   bool judged = true);
  // A pair on a new batch. The generator runs without gradient; `update` lets its codebooks follow here,
  // too (audiolm-pytorch).
  RealAndFake make_pair(const at::Tensor& wave, Draws* draws, bool update);

  const SoundStreamGanConfig& config() const { return config_; }

  SoundStream codec{nullptr};
  Discriminators discriminators{nullptr};

 private:
  // Losses that the discriminators give the generator, unweighted.
  struct JudgedLosses {
    at::Tensor adversarial, feature;
  };
  JudgedLosses losses_by_judges(const std::vector<Judgement>& real, const std::vector<Judgement>& fake) const;
  at::Tensor weighted(const JudgedLosses& by_judges) const;
  // Judges both waves once for both phases. Returns a scalar with the value of the weighted losses, whose
  // gradient reaches the generator through `fake` alone.
  at::Tensor judge_for_both_phases(RealAndFake& pair, const at::Tensor& real, const at::Tensor& fake,
                                   JudgedLosses& by_judges);

  SoundStreamGanConfig config_;
  MultiScaleMelLoss mel_loss_;
  RootSpectrumLoss root_spectrum_loss_;
  BandShapeLoss band_shape_loss_;
};
TORCH_MODULE(SoundStreamGan);

}  // namespace melete

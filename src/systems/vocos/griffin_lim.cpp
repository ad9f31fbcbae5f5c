#include "systems/vocos/griffin_lim.h"

#include <numbers>

#include "config/schema.h"
#include "core/base/error.h"
#include "core/base/random.h"
#include "nn/draws.h"
#include "nn/frozen.h"
#include "nn/identity.h"

namespace melete {

namespace {

constexpr double kMomentum = 0.99;  // of the phases' way (Perraudin et al. 2013)
constexpr int64_t kBandRounds = 30;

}  // namespace

MelGriffinLim::MelGriffinLim(const MelFramesConfig& config, int64_t rounds) : mel_(config), rounds_(rounds) {
  require(config.values == "log_magnitude", "[griffin-lim] expected mel frames of log_magnitude, got {}",
          config.values);
  require(config.window == config.n_fft, "[griffin-lim] expected a window of n_fft {}, got {}", config.n_fft,
          config.window);
  const double high_hz = config.high_hz > 0 ? config.high_hz : static_cast<double>(config.rate_hz / 2);
  filters_ = mel_filters(config.n_fft, config.mels, config.rate_hz, high_hz);
  identity_ = identity_of("mel frames", identifying_settings(config), {});
}

at::Tensor MelGriffinLim::encode(const at::Tensor& audio) const {
  const at::Tensor wave = audio.to(filters_.device());
  const FrozenScope frozen(wave);
  return mel_(wave).to(audio.device());
}

// There are more bins than bands, so many spectra have these bands; wanted is one that is nowhere negative.
// The rule of Richardson and Lucy keeps it so and weighs a quiet band like a loud one: every bin is
// multiplied by how far its bands are from where they should be.
at::Tensor MelGriffinLim::magnitudes(const at::Tensor& bands) const {
  constexpr double kTiny = 1e-9;
  const at::Tensor shares = (filters_ / filters_.sum(1, true).clamp_min(kTiny)).t();  // of bands in a bin
  // A smooth start: between the middles of bands their mean magnitudes, interpolated.
  at::Tensor x = at::matmul(bands / filters_.sum(0).clamp_min(kTiny), shares);
  for (int64_t round = 0; round < kBandRounds; ++round)
    x = x * at::matmul(bands / at::matmul(x, filters_).clamp_min(kTiny), shares);
  return x;
}

at::Tensor MelGriffinLim::decode(const at::Tensor& given) const {
  const at::Tensor frames = given.to(filters_.device());
  const FrozenScope frozen(frames);
  const MelFramesConfig& config = mel_.config();
  const StftConfig transform{config.n_fft, config.hop, config.window};
  const FrameEdges edges = config.edges == "same" ? FrameEdges::same : FrameEdges::centre;
  const int64_t mirrored = (config.window - config.hop) / 2;
  const auto spectrum_of = [&](const at::Tensor& wave) {
    if (edges == FrameEdges::centre) return stft(wave, transform);
    const int64_t both[] = {mirrored, mirrored};
    return stft(at::reflection_pad1d(wave, both), transform, StftEnds::cut);
  };
  const at::Tensor magnitude =
      magnitudes(frames.to(at::kFloat).exp()).transpose(1, 2);  // [batch, bins, frames]
  // Any phases but equal ones: those would put all of a frame's sound where its window is zero, and hops
  // would be heard as a tone. The same ones for every row, so that a row does not depend on what stands
  // beside it.
  SeededDraws draws(random_key(0, "griffin-lim"));
  const at::Tensor angles =
      (2 * std::numbers::pi * draws.uniform("phases", {1, magnitude.size(1), magnitude.size(2)}))
          .to(frames.device());
  at::Tensor phases = at::complex(angles.cos(), angles.sin()), before;
  at::Tensor wave;
  for (int64_t round = 0; round <= rounds_; ++round) {
    wave = inverse_stft(magnitude * phases, transform, edges);
    if (round == rounds_) break;
    const at::Tensor now = spectrum_of(wave);
    const at::Tensor ahead = before.defined() ? now + kMomentum * (now - before) : now;
    phases = ahead / ahead.abs().clamp_min(1e-8);
    before = now;
  }
  return wave.to(given.device());
}

}  // namespace melete

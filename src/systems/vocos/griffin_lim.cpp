#include "systems/vocos/griffin_lim.h"

#include "config/schema.h"
#include "core/base/error.h"
#include "nn/frozen.h"
#include "nn/identity.h"

namespace melete {

namespace {

constexpr double kMomentum = 0.99;  // of the phases' way (Perraudin et al. 2013)

}  // namespace

MelGriffinLim::MelGriffinLim(const MelFramesConfig& config, int64_t rounds) : mel_(config), rounds_(rounds) {
  require(config.values == "log_magnitude", "[griffin-lim] expected mel frames of log_magnitude, got {}",
          config.values);
  require(config.window == config.n_fft, "[griffin-lim] expected a window of n_fft {}, got {}", config.n_fft,
          config.window);
  const double high_hz = config.high_hz > 0 ? config.high_hz : static_cast<double>(config.rate_hz / 2);
  inverse_ = at::linalg_pinv(mel_filters(config.n_fft, config.mels, config.rate_hz, high_hz).to(at::kDouble))
                 .to(at::kFloat);
  MelFramesConfig settings = config;
  identity_ = identity_of("mel frames", schema_of(settings).json(), {});
}

at::Tensor MelGriffinLim::encode(const at::Tensor& audio) const {
  const at::Tensor wave = audio.to(inverse_.device());
  const FrozenScope frozen(wave);
  return mel_(wave).to(audio.device());
}

at::Tensor MelGriffinLim::decode(const at::Tensor& given) const {
  const at::Tensor frames = given.to(inverse_.device());
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
  const at::Tensor magnitude = at::matmul(frames.to(at::kFloat).exp(), inverse_).clamp_min(0).transpose(1, 2);
  at::Tensor phases = at::complex(at::ones_like(magnitude), at::zeros_like(magnitude)), before;
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

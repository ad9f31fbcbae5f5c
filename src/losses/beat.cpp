#include "losses/beat.h"

#include <cmath>

#include "core/base/error.h"
#include "nn/spectrum.h"

namespace melete {

namespace {

constexpr double kOnsetWindowSeconds = 0.04;
constexpr int64_t kOnsetBands = 40;
constexpr double kQuietestBand = 1e-4;  // of a row's loudest band: below it nothing begins
constexpr int64_t kBlurFrames =
    7;  // hands and frames of codecs are some hundredths of a second early or late

}  // namespace

at::Tensor onset_strength(const at::Tensor& wave, int64_t rate_hz) {
  require(wave.dim() == 2, "[beat] expected [rows, samples], got {} dimensions", wave.dim());
  const auto window = static_cast<int64_t>(kOnsetWindowSeconds * static_cast<double>(rate_hz));
  int64_t n_fft = 1;
  while (n_fft < window) n_fft *= 2;
  const int64_t hop = rate_hz / kOnsetsPerSecond;
  require(hop >= 1 && wave.size(1) > n_fft, "[beat] expected more than {} samples at {} Hz, got {}", n_fft,
          rate_hz, wave.size(1));
  const at::Tensor power =
      MelSpectrogram({n_fft, hop, window}, kOnsetBands, rate_hz)(wave);  // [rows, bands, frames]
  const at::Tensor loudest = power.amax({1, 2}, true).clamp_min(1e-12);
  const at::Tensor level = at::log(power / loudest + kQuietestBand);
  const at::Tensor rise = at::relu(level.diff(1, 2)).mean(1);  // [rows, frames - 1]
  const at::Tensor blur = window_of("hann", kBlurFrames + 1).narrow(0, 1, kBlurFrames);
  return at::conv1d(rise.unsqueeze(1), (blur / blur.sum()).view({1, 1, -1}), {}, 1, kBlurFrames / 2)
      .squeeze(1);
}

at::Tensor beat_strength(const at::Tensor& onsets, double beat_seconds) {
  const int64_t frames = onsets.size(1);
  const auto beat = static_cast<int64_t>(std::lround(beat_seconds * kOnsetsPerSecond));
  require(beat >= 1 && 2 * beat <= frames,
          "[beat] expected sounds of at least two beats of {:.2f} s, got {:.2f} s; "
          "try longer ones",
          beat_seconds, static_cast<double>(frames) / kOnsetsPerSecond);
  const at::Tensor centred = onsets - onsets.mean(1, true);
  const at::Tensor now = centred.narrow(1, 0, frames - beat), later = centred.narrow(1, beat, frames - beat);
  const at::Tensor size = at::sqrt(now.square().sum(1) * later.square().sum(1));
  return (now * later).sum(1) / size.clamp_min(1e-9);
}

}  // namespace melete

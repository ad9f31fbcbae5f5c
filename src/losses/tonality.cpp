#include "losses/tonality.h"

#include "core/base/error.h"
#include "nn/spectrum.h"

namespace melete {

namespace {

// Lower notes lie closer together than the window can tell apart; higher peaks are mostly overtones.
constexpr double kLowestHz = 100, kHighestHz = 2000;
constexpr double kWindowSeconds = 0.34;
constexpr double kQuietest = 0.03;  // of the row's loudest peak: below it, noise and side lobes

int64_t window_samples(int64_t rate_hz) {
  int64_t samples = 1;
  while (static_cast<double>(samples) < kWindowSeconds * static_cast<double>(rate_hz)) samples *= 2;
  return samples;
}

}  // namespace

at::Tensor chroma(const at::Tensor& wave, int64_t rate_hz) {
  require(wave.dim() == 2, "[chroma] expected [rows, samples], got {} dimensions", wave.dim());
  require(rate_hz >= 4500, "[chroma] expected at least 4500 Hz, got {}", rate_hz);
  const int64_t n = window_samples(rate_hz);
  const at::Tensor long_enough = wave.size(1) >= n ? wave : at::constant_pad_nd(wave, {0, n - wave.size(1)});
  // Only windows that lie within the sound: its mirrored ends would be heard as other notes.
  const int64_t hop = n / 4, inside = (long_enough.size(1) - n) / hop + 1;
  const at::Tensor magnitude =
      stft(long_enough, {n, hop, n}).abs().narrow(2, 2, inside);  // [rows, bins, frames]
  const auto bin_of = [&](double hz) {
    return static_cast<int64_t>(hz * static_cast<double>(n) / static_cast<double>(rate_hz));
  };
  const int64_t from = bin_of(kLowestHz), count = bin_of(kHighestHz) - from;
  const auto shifted = [&](int64_t by) { return magnitude.narrow(1, from + by, count); };
  const at::Tensor before = shifted(-1), here = shifted(0), after = shifted(1);
  const at::Tensor loudest = here.amax({1, 2}, true);
  const at::Tensor peak = (here > before).logical_and(here >= after).logical_and(here > kQuietest * loudest);

  // A parabola through the logarithms of three bins puts the peak between them.
  const auto log_of = [](const at::Tensor& x) { return at::log(at::clamp_min(x, 1e-12)); };
  const at::Tensor left = log_of(before), middle = log_of(here), right = log_of(after);
  const at::Tensor curve = at::clamp_max(left - 2 * middle + right, -1e-6);
  const at::Tensor offset = at::clamp(0.5 * (left - right) / curve, -0.5, 0.5);
  const at::Tensor bins = at::arange(from, from + count, here.options()).view({1, -1, 1}) + offset;
  const at::Tensor hz = bins * (static_cast<double>(rate_hz) / static_cast<double>(n));
  const at::Tensor pitch = at::round(69 + 12 * at::log2(hz / 440)).to(at::kLong).remainder(12);

  const at::Tensor sums = at::zeros({wave.size(0), 12}, here.options())
                              .scatter_add(1, pitch.flatten(1), (here * peak).flatten(1));
  return sums / at::clamp_min(sums.sum(1, true), 1e-12);
}

at::Tensor in_scale_share(const at::Tensor& chroma, const std::vector<int>& pitch_classes) {
  require(chroma.dim() == 2 && chroma.size(1) == 12, "[scale] expected chroma of 12 pitch classes");
  at::Tensor inside = at::zeros({12}, chroma.options());
  for (const int pitch_class : pitch_classes) {
    require(pitch_class >= 0 && pitch_class < 12, "[scale] expected pitch classes 0 to 11, got {}",
            pitch_class);
    inside[pitch_class] = 1;
  }
  return at::mv(chroma, inside);
}

}  // namespace melete

#include "losses/intelligibility.h"

#include <torch/fft.h>

#include <cmath>

#include "core/base/error.h"
#include "io/resample_audio.h"

namespace melete {

namespace {

// The papers' constants.
constexpr int64_t kRateHz = 10000, kFrame = 256, kHop = kFrame / 2, kTransform = 512;
constexpr int64_t kBands = 15, kSegmentFrames = 30;  // 30 frames are 384 ms
constexpr double kLowestBandHz = 150;
constexpr double kQuietestDb = -40;  // frames so far below the loudest one say nothing and are left out
constexpr double kClipDb = -15;      // a band counts as lost, not as more than lost, below this
constexpr double kTiny = 1e-12;

at::Tensor frame_window() {
  return at::hann_window(kFrame + 2, /*periodic=*/false, at::kDouble).narrow(0, 1, kFrame);
}

// [samples] -> [frames, kFrame], windowed
at::Tensor frames_of(const at::Tensor& x) {
  return x.unfold(0, kFrame, kHop) * frame_window();
}

// Frames laid side by side again, each half over the one before. [frames, kFrame] -> [samples]
at::Tensor overlapped(const at::Tensor& frames) {
  const int64_t count = frames.size(0);
  const at::Tensor halves = frames.view({count, 2, kHop});
  at::Tensor blocks = at::zeros({count + 1, kHop}, frames.options());
  blocks.narrow(0, 0, count).add_(halves.select(1, 0));
  blocks.narrow(0, 1, count).add_(halves.select(1, 1));
  return blocks.flatten();
}

// Which bins belong to which third of an octave. [kBands, kTransform / 2 + 1]
at::Tensor third_octaves() {
  const at::Tensor hz =
      at::arange(kTransform / 2 + 1, at::kDouble) * (static_cast<double>(kRateHz) / kTransform);
  at::Tensor bands = at::zeros({kBands, hz.size(0)}, at::kDouble);
  for (int64_t band = 0; band < kBands; ++band) {
    const auto bin = [&](double sixths) {
      const double edge = kLowestBandHz * std::exp2((2.0 * static_cast<double>(band) + sixths) / 6);
      return (hz - edge).abs().argmin().item<int64_t>();
    };
    const int64_t low = bin(-1), high = bin(1);
    bands[band].narrow(0, low, high - low).fill_(1);
  }
  return bands;
}

// Magnitudes of the bands. [samples] -> [kBands, frames]
at::Tensor band_magnitudes(const at::Tensor& x) {
  const at::Tensor spectrum = torch::fft::rfft(frames_of(x), kTransform);  // [frames, bins]
  const at::Tensor power = at::view_as_real(spectrum).square().sum(-1);
  return at::sqrt(at::mm(third_octaves(), power.t()));
}

// Without mean and of length one along `dim`.
at::Tensor normalised(const at::Tensor& x, int64_t dim) {
  const at::Tensor centred = x - x.mean(dim, true);
  return centred / at::clamp_min(centred.norm(2, {dim}, true), kTiny);
}

}  // namespace

std::optional<Intelligibility> intelligibility(const at::Tensor& clean, const at::Tensor& heard,
                                               int64_t sample_rate_hz) {
  require(clean.dim() == 1 && clean.sizes() == heard.sizes(),
          "[intelligibility] expected two signals [samples] of the same length, got {} and {} samples",
          clean.numel(), heard.numel());
  const auto at_rate = [&](const at::Tensor& x) {
    return resample_audio(x.detach().to(at::kCPU, at::kFloat), sample_rate_hz, kRateHz).to(at::kDouble);
  };
  const at::Tensor x = at_rate(clean), y = at_rate(heard);
  if (x.size(0) < kFrame) return {};
  const at::Tensor x_frames = frames_of(x), y_frames = frames_of(y);
  const at::Tensor energy = x_frames.norm(2, {1});
  const at::Tensor loud = at::nonzero(energy > energy.max() * std::pow(10, kQuietestDb / 20)).squeeze(1);
  if (loud.size(0) + 1 < kSegmentFrames) return {};
  const auto bands = [&](const at::Tensor& frames) {
    return band_magnitudes(overlapped(frames.index_select(0, loud)));
  };
  const at::Tensor x_bands = bands(x_frames), y_bands = bands(y_frames);  // [kBands, frames]
  if (x_bands.size(1) < kSegmentFrames) return {};
  // Every run of 30 frames. [segments, kBands, 30]
  const at::Tensor xs = x_bands.unfold(1, kSegmentFrames, 1).transpose(0, 1);
  const at::Tensor ys = y_bands.unfold(1, kSegmentFrames, 1).transpose(0, 1);

  // STOI: bands brought to the original's level, what was added clipped, then their correlation over time.
  const at::Tensor level = xs.norm(2, {2}, true) / at::clamp_min(ys.norm(2, {2}, true), kTiny);
  const at::Tensor clipped = at::minimum(ys * level, xs * (1 + std::pow(10, -kClipDb / 20)));
  const double stoi = (normalised(xs, 2) * normalised(clipped, 2)).sum(2).mean().item<double>();

  // ESTOI: bands normalised over time, then moments over bands, and the correlation of those.
  const at::Tensor x_shape = normalised(normalised(xs, 2), 1), y_shape = normalised(normalised(ys, 2), 1);
  const double extended = (x_shape * y_shape).sum(1).mean().item<double>();
  return Intelligibility{stoi, extended};
}

}  // namespace melete

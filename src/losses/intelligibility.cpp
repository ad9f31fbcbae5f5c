#include "losses/intelligibility.h"

#include <torch/fft.h>

#include <cmath>

#include "core/autocast.h"
#include "core/base/error.h"
#include "core/device.h"
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
// Of the loss: segments begin every third frame; bands and moments below the loudest by as much as frames
// that the figure leaves out are not brought up any further.
constexpr int64_t kSegmentHop = 3;
constexpr double kSilence = 1e-9;  // power of a bin, as no recording has it

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

// Which bins belong to which third of an octave. [bands, transform / 2 + 1]
at::Tensor third_octaves(int64_t rate_hz, int64_t transform, int64_t count) {
  const at::Tensor hz = at::arange(transform / 2 + 1, at::kDouble) *
                        (static_cast<double>(rate_hz) / static_cast<double>(transform));
  at::Tensor bands = at::zeros({count, hz.size(0)}, at::kDouble);
  for (int64_t band = 0; band < count; ++band) {
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
  return at::sqrt(at::mm(third_octaves(kRateHz, kTransform, kBands), power.t()));
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

BandShapeLoss::BandShapeLoss(int64_t sample_rate_hz) {
  // The paper's frames in seconds, and as many thirds of an octave as end below half of the rate.
  const auto samples = [&](int64_t at_paper_rate) { return at_paper_rate * sample_rate_hz / kRateHz; };
  stft_.window = samples(kFrame) / 2 * 2;
  stft_.hop = samples(kHop);
  stft_.n_fft =
      int64_t{1} << static_cast<int64_t>(std::ceil(std::log2(static_cast<double>(samples(kTransform)))));
  const double thirds = 3 * std::log2(static_cast<double>(sample_rate_hz) / 2 / kLowestBandHz) - 0.5;
  bands_ = third_octaves(sample_rate_hz, stft_.n_fft, std::max<int64_t>(2, static_cast<int64_t>(thirds) + 1))
               .t()
               .to(at::kFloat)
               .contiguous();
}

at::Tensor BandShapeLoss::magnitudes(const at::Tensor& wave) const {
  const at::Tensor spectrum = at::view_as_real(stft(wave, stft_));  // [rows, bins, frames, 2]
  const at::Tensor power = spectrum.square().sum(-1).transpose(1, 2);
  return at::sqrt(at::matmul(power, sent_to(power.device(), bands_)) + kSilence).transpose(1, 2);
}

at::Tensor BandShapeLoss::operator()(const at::Tensor& real, const at::Tensor& fake) const {
  const AutocastScope exact(real.device().type(), false);
  const double quietest = std::pow(10, kQuietestDb / 20);
  // [rows, bands, frames] -> [rows, segments, bands, segment's frames], a view; what is shorter is one
  // segment.
  const auto segments = [](const at::Tensor& x) {
    return x.unfold(2, std::min(kSegmentFrames, x.size(2)), kSegmentHop).transpose(1, 2);
  };
  const auto shape = [quietest](const at::Tensor& x) {
    const auto levelled = [](const at::Tensor& values, int64_t dim, const at::Tensor& least) {
      const at::Tensor centred = values - values.mean(dim, true);
      return centred / at::sqrt(centred.square().sum(dim, true) + least.square());
    };
    const at::Tensor loudest = x.detach().norm(2, {3}, true).amax({1, 2, 3}, true);  // of a row's bands
    const at::Tensor over_time = levelled(x, 3, quietest * loudest);
    return levelled(over_time, 2, at::full_like(loudest, quietest));
  };
  const at::Tensor real_shape = shape(segments(magnitudes(real)));
  const at::Tensor fake_shape = shape(segments(magnitudes(fake)));
  return (real_shape - fake_shape).square().sum(2).mean() / 2;
}

}  // namespace melete

#include "losses/quality.h"

#include <algorithm>
#include <cmath>

#include "nn/spectrum.h"

namespace melete {

at::Tensor si_sdr(const at::Tensor& real, const at::Tensor& fake) {
  const at::Tensor target = real - real.mean(-1, true), estimate = fake - fake.mean(-1, true);
  const at::Tensor scale =
      (target * estimate).sum(-1, true) / at::clamp_min(target.square().sum(-1, true), 1e-8);
  const at::Tensor projected = scale * target;
  const at::Tensor noise = at::clamp_min((estimate - projected).square().sum(-1), 1e-8);
  return (10 * at::log10(at::clamp_min(projected.square().sum(-1), 1e-8) / noise)).mean();
}

namespace {

at::Tensor log_mel_distance(const MelSpectrogram& mel, const at::Tensor& real, const at::Tensor& fake) {
  const auto log_mel = [&](const at::Tensor& wave) { return at::log(at::clamp_min(mel(wave), 1e-5)); };
  return (log_mel(real) - log_mel(fake)).abs().mean();
}

// Median over `reach` bins on either side, the ends repeated. [rows, bins]
at::Tensor surroundings(const at::Tensor& spectrum, int64_t reach) {
  const int64_t bins = spectrum.size(1);
  const at::Tensor padded = at::cat({spectrum.narrow(1, 0, 1).expand({-1, reach}), spectrum,
                                     spectrum.narrow(1, bins - 1, 1).expand({-1, reach})},
                                    1);
  return std::get<0>(padded.unfold(1, 2 * reach + 1, 1).median(-1));
}

}  // namespace

at::Tensor mel_distance(const at::Tensor& real, const at::Tensor& fake, int64_t sample_rate_hz) {
  return log_mel_distance(MelSpectrogram({1024, 256, 1024}, 80, sample_rate_hz), real, fake);
}

at::Tensor fine_mel_distance(const at::Tensor& real, const at::Tensor& fake, int64_t sample_rate_hz) {
  return log_mel_distance(MelSpectrogram({512, 64, 256}, 40, sample_rate_hz), real, fake);
}

at::Tensor stft_distance(const at::Tensor& real, const at::Tensor& fake) {
  at::Tensor total = at::zeros({}, real.options().dtype(at::kFloat));
  for (const int64_t n_fft : {512, 1024, 2048}) {
    const StftConfig config{n_fft, n_fft / 4, n_fft};
    const at::Tensor a = stft(real, config).abs(), b = stft(fake, config).abs();  // [rows, bins, frames]
    const at::Tensor convergence = (a - b).norm(2, {1, 2}) / at::clamp_min(a.norm(2, {1, 2}), 1e-8);
    const at::Tensor log_difference =
        (at::log(at::clamp_min(a, 1e-5)) - at::log(at::clamp_min(b, 1e-5))).abs();
    total = total + convergence.mean() + log_difference.mean();
  }
  return total / 3;
}

const std::vector<double>& band_edges_hz() {
  static const std::vector<double> edges = {1000, 2000, 4000};
  return edges;
}

at::Tensor band_distances(const at::Tensor& real, const at::Tensor& fake, int64_t sample_rate_hz) {
  constexpr int64_t kTransform = 512;
  const StftConfig config{kTransform, kTransform / 4, kTransform};
  const at::Tensor a = stft(real, config).abs(), b = stft(fake, config).abs();  // [rows, bins, frames]
  const at::Tensor floor = at::clamp_min(a.amax({1, 2}, true) * 1e-4, 1e-8);
  const at::Tensor squared =
      (20 * (at::log10(at::maximum(a, floor)) - at::log10(at::maximum(b, floor)))).square();
  std::vector<int64_t> borders{0};
  for (const double edge : band_edges_hz())
    borders.push_back(std::min<int64_t>(std::llround(edge * kTransform / static_cast<double>(sample_rate_hz)),
                                        squared.size(1)));
  borders.push_back(squared.size(1));
  std::vector<at::Tensor> distances;
  for (size_t i = 0; i + 1 < borders.size(); ++i) {
    const at::Tensor band = squared.narrow(1, borders[i], borders[i + 1] - borders[i]);
    distances.push_back(band.size(1) > 0 ? at::sqrt(band.mean(1)).mean() : at::zeros({}, real.options()));
  }
  return at::stack(distances);
}

std::optional<double> steady_tones(const at::Tensor& real, const at::Tensor& fake, int64_t sample_rate_hz) {
  int64_t window = 256;  // a quarter of a second, so that a line is a few Hz wide
  while (4 * window < sample_rate_hz) window *= 2;
  if (real.size(-1) < 4 * window) return {};  // the mean of fewer frames has lines of its own
  const auto reach =
      static_cast<int64_t>(150.0 * static_cast<double>(window) / static_cast<double>(sample_rate_hz));
  const auto lines = [&](const at::Tensor& wave, const at::Tensor& floor) {
    const at::Tensor magnitude = stft(wave, {window, window / 4, window}, StftEnds::cut).abs();
    const at::Tensor mean_db = (20 * at::log10(at::maximum(magnitude, floor))).mean(2);  // [rows, bins]
    return mean_db - surroundings(mean_db, reach);
  };
  // Lines 80 dB below the loudest point are not heard.
  const at::Tensor loudest = stft(real, {window, window / 4, window}, StftEnds::cut).abs().amax({1, 2}, true);
  const at::Tensor floor = at::clamp_min(loudest * 1e-4, 1e-8);
  // A line of the original may move by a bin without being a new one.
  const at::Tensor known = at::max_pool1d(lines(real, floor).unsqueeze(1), {3}, {1}, {1}).squeeze(1);
  const at::Tensor added = at::clamp_min(lines(fake, floor) - at::clamp_min(known, 0), 0);  // [rows, bins]
  const int64_t most = std::max<int64_t>(1, added.size(1) / 100);
  return std::get<0>(added.topk(most, 1)).mean().item<double>();
}

CodeUse code_use(const at::Tensor& codes, int64_t codebook_size) {
  const at::Tensor flat = codes.flatten(), used = (flat >= 0).to(at::kFloat);
  // Not masked_select and bincount: they ask the device how large their results are.
  const at::Tensor counts = at::zeros({codebook_size}, used.options()).index_add_(0, flat.clamp_min(0), used);
  const at::Tensor share = counts / at::clamp_min(counts.sum(), 1);
  const at::Tensor entropy = -(share * at::log(at::clamp_min(share, 1e-10))).sum();
  const at::Tensor possible = used.sum().clamp_max(static_cast<double>(codebook_size)).clamp_min(1);
  return {entropy.exp(), (counts > 0).sum().to(at::kFloat) / possible};
}

}  // namespace melete

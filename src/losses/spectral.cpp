#include "losses/spectral.h"

#include <algorithm>
#include <cmath>

#include "core/base/error.h"

namespace melete {

namespace {

int64_t one_or_own(const std::vector<int64_t>& values, size_t index, size_t count, const char* name) {
  require(values.size() == 1 || values.size() == count, "[mel loss] {} needs 1 or {} values, got {}", name,
          count, values.size());
  return values.size() == 1 ? values.front() : values[index];
}

}  // namespace

void describe(Schema& s, MelLossConfig& c) {
  s.option("window_powers", c.window_powers, "windows of 2^power samples").at_least(1);
  s.option("n_ffts", c.n_ffts, "transform lengths: one, or one a window; at least the window").at_least(1);
  s.option("mels", c.mels, "mel bands: one, or one a window").at_least(1);
  s.option("normalized", c.normalized, "divide spectra by the energy of the window");
  s.option("floor", c.floor, "energies below this count as silence").at_least(1e-30);
  s.option("distance", c.distance,
           "L1 of spectra plus L2 of their logarithms, as the paper has it, or L1 of the logarithms alone")
      .one_of({"paper", "log"});
}

MultiScaleMelLoss::MultiScaleMelLoss(const MelLossConfig& config, int64_t sample_rate_hz)
    : floor_(config.floor), logarithms_only_(config.distance == "log") {
  const size_t count = config.window_powers.size();
  for (size_t i = 0; i < count; ++i) {
    const int64_t window = int64_t{1} << config.window_powers[i];
    StftConfig stft;
    stft.window = window;
    stft.n_fft = std::max(one_or_own(config.n_ffts, i, count, "n_ffts"), window);
    stft.hop = window / 4;
    scales_.push_back(
        {MelSpectrogram(stft, one_or_own(config.mels, i, count, "mels"), sample_rate_hz, config.normalized),
         std::sqrt(static_cast<double>(window) / 2)});
  }
}

at::Tensor MultiScaleMelLoss::operator()(const at::Tensor& real, const at::Tensor& fake) const {
  const auto log = [this](const at::Tensor& t) { return at::log(at::clamp_min(t, floor_)); };
  at::Tensor total = at::zeros({}, real.options().dtype(at::kFloat));
  for (const Scale& scale : scales_) {
    const at::Tensor real_mel = scale.mel(real), fake_mel = scale.mel(fake);  // [rows, mels, frames]
    if (logarithms_only_) {
      // Added, not clamped to: what lies below the floor is still pulled.
      const at::Tensor difference = at::log(real_mel + floor_) - at::log(fake_mel + floor_);
      total = total + difference.abs().mean() / static_cast<double>(scales_.size());
      continue;
    }
    total = total + (real_mel - fake_mel).abs().sum(-2).mean() +
            scale.log_weight * (log(real_mel) - log(fake_mel)).norm(2, {-2}).mean();
  }
  return total;
}

void describe(Schema& s, RootSpectrumLossConfig& c) {
  s.option("window_powers", c.window_powers, "windows of 2^power samples").at_least(1);
  s.option("power", c.power, "of magnitudes").at_least(0.01).at_most(1);
  s.option("phase_share", c.phase_share, "of the loss that phases count for").at_least(0).at_most(1);
  s.option("phase_below_hz", c.phase_below_hz, "where phases count; 0: everywhere").at_least(0).unit("Hz");
}

RootSpectrumLoss::RootSpectrumLoss(const RootSpectrumLossConfig& config, int64_t sample_rate_hz)
    : config_(config), sample_rate_hz_(sample_rate_hz) {}

at::Tensor RootSpectrumLoss::operator()(const at::Tensor& real, const at::Tensor& fake) const {
  constexpr double kSilence =
      1e-8;  // power of a bin, beside a full-scale sine's of about the window's length
  const double floor = std::pow(kSilence, config_.power);  // so that rows of silence divide by something
  at::Tensor total = at::zeros({}, real.options().dtype(at::kFloat));
  for (const int64_t window_power : config_.window_powers) {
    StftConfig config;
    config.window = config.n_fft = int64_t{1} << window_power;
    config.hop = config.window / 4;
    const double scale = 1 / std::sqrt(static_cast<double>(config.window));
    // [rows, bins, frames, 2] -> the same with roots of magnitudes, and those [rows, bins, frames]
    const auto roots = [&](const at::Tensor& wave) {
      const at::Tensor bins = at::view_as_real(stft(wave, config)) * scale;
      const at::Tensor power = bins.square().sum(-1) + kSilence;
      const at::Tensor root = power.pow((config_.power - 1) / 2);
      return std::pair{bins * root.unsqueeze(-1), root * power.sqrt()};
    };
    const auto [real_bins, real_sizes] = roots(real);
    const auto [fake_bins, fake_sizes] = roots(fake);
    // Row by row, so that a mean over rows is the same however they are shared out among ranks.
    const auto beside = [floor](const at::Tensor& error, const at::Tensor& strength) {
      return (error.square().flatten(1).mean(1) / (strength.square().flatten(1).mean(1) + floor)).mean();
    };
    int64_t bins = real_sizes.size(1);
    if (config_.phase_below_hz > 0)
      bins = std::min(bins,
                      1 + static_cast<int64_t>(config_.phase_below_hz * static_cast<double>(config.window) /
                                               static_cast<double>(sample_rate_hz_)));
    const at::Tensor phased =
                         beside((real_bins - fake_bins).narrow(1, 0, bins), real_bins.narrow(1, 0, bins)),
                     sized = beside(real_sizes - fake_sizes, real_sizes);
    total = total + config_.phase_share * phased + (1 - config_.phase_share) * sized;
  }
  return total / static_cast<double>(config_.window_powers.size());
}

at::Tensor relative_error_db(const at::Tensor& real, const at::Tensor& fake, double floor) {
  const at::Tensor error = (real - fake).square().mean(-1) + floor, power = real.square().mean(-1) + floor;
  return (10 * (at::log10(error) - at::log10(power))).mean();
}

}  // namespace melete

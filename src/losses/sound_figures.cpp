#include "losses/sound_figures.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "losses/intelligibility.h"
#include "losses/quality.h"

namespace melete {

std::vector<SoundFigure> sound_figures(const at::Tensor& real, const at::Tensor& fake,
                                       int64_t sample_rate_hz) {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  const auto understood = intelligibility(real.flatten(), fake.flatten(), sample_rate_hz);
  const at::Tensor by_band = band_distances(real, fake, sample_rate_hz).cpu();
  std::vector<SoundFigure> figures = {
      {"mel_distance", "mel distance", false, 3, mel_distance(real, fake, sample_rate_hz).item<double>()},
      {"fine_mel_distance", "fine mel", false, 3,
       fine_mel_distance(real, fake, sample_rate_hz).item<double>()},
      {"stft_distance", "STFT distance", false, 3, stft_distance(real, fake).item<double>()},
      {"si_sdr", "SI-SDR (dB)", true, 2, si_sdr(real, fake).item<double>()},
      {"stoi", "STOI", true, 3, understood ? understood->stoi : kNone},
      {"extended_stoi", "ESTOI", true, 3, understood ? understood->extended : kNone},
      {"steady_tones", "tones (dB)", false, 1, steady_tones(real, fake, sample_rate_hz).value_or(kNone)}};
  double from_khz = 0;
  for (int64_t i = 0; i < by_band.size(0); ++i) {
    const bool last = i + 1 == by_band.size(0);
    const double half_khz = static_cast<double>(sample_rate_hz) / 2000;
    const double to_khz = last ? half_khz : band_edges_hz()[static_cast<size_t>(i)] / 1000;
    figures.push_back({fmt::format("log_spectral_distance_{:g}_{:g}_khz", from_khz, to_khz),
                       fmt::format("{:g}-{:g} kHz", from_khz, to_khz), false, 1,
                       from_khz < half_khz ? by_band[i].item<double>() : kNone});
    from_khz = to_khz;
  }
  return figures;
}

void FigureMeans::add(const std::vector<SoundFigure>& figures) {
  if (sums_.empty()) {
    sums_ = figures;
    for (SoundFigure& sum : sums_) sum.value = 0;
    counts_.assign(figures.size(), 0);
  }
  for (size_t i = 0; i < figures.size(); ++i) {
    if (std::isnan(figures[i].value)) continue;
    sums_[i].value += figures[i].value;
    ++counts_[i];
  }
}

std::vector<SoundFigure> FigureMeans::means() const {
  std::vector<SoundFigure> result = sums_;
  for (size_t i = 0; i < result.size(); ++i)
    result[i].value = counts_[i] > 0 ? result[i].value / static_cast<double>(counts_[i])
                                     : std::numeric_limits<double>::quiet_NaN();
  return result;
}

}  // namespace melete

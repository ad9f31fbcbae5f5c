#include "nn/mfcc.h"

#include <cmath>

#include "core/base/error.h"
#include "core/device.h"
#include "nn/windows.h"

namespace melete {

namespace {

constexpr float kFloor = 1.1920929e-7f;  // of a mel band's power

double mel_of(double hz) {
  return 1127.0 * std::log(1 + hz / 700);
}

// Triangles that are straight on the mel scale, not in Hz.
at::Tensor kaldi_filters(int64_t n_fft, const MfccConfig& config) {
  const int64_t bins = n_fft / 2 + 1;
  const double low = mel_of(config.low_hz), high = mel_of(static_cast<double>(config.sample_rate_hz) / 2);
  const double width = (high - low) / static_cast<double>(config.mels + 1);
  const at::Tensor filters = at::zeros({bins, config.mels});
  auto cells = filters.accessor<float, 2>();
  for (int64_t bin = 0; bin < bins; ++bin) {
    const double at = mel_of(static_cast<double>(bin * config.sample_rate_hz) / static_cast<double>(n_fft));
    for (int64_t mel = 0; mel < config.mels; ++mel) {
      const double left = low + static_cast<double>(mel) * width;
      const double rise = (at - left) / width, fall = (left + 2 * width - at) / width;
      cells[bin][mel] = static_cast<float>(std::max(0.0, std::min(rise, fall)));
    }
  }
  return filters;
}

at::Tensor liftered_cosines(const MfccConfig& config) {
  const at::Tensor cosines = at::zeros({config.mels, config.coefficients});
  auto cells = cosines.accessor<float, 2>();
  const auto count = static_cast<double>(config.mels);
  for (int64_t mel = 0; mel < config.mels; ++mel)
    for (int64_t k = 0; k < config.coefficients; ++k) {
      const auto order = static_cast<double>(k);
      const double scale = std::sqrt((k == 0 ? 1 : 2) / count);
      const double lift = config.lifter > 0
                              ? 1 + 0.5 * static_cast<double>(config.lifter) *
                                        std::sin(M_PI * order / static_cast<double>(config.lifter))
                              : 1;
      cells[mel][k] = static_cast<float>(lift * scale *
                                         std::cos(M_PI / count * (static_cast<double>(mel) + 0.5) * order));
    }
  return cosines;
}

// The slope of a straight line through the frames around each one; the ends are repeated. [batch, dim,
// frames]
at::Tensor slopes(const at::Tensor& x, int64_t window) {
  const int64_t reach = (window - 1) / 2;
  const int64_t both[] = {reach, reach};
  const at::Tensor padded = at::replication_pad1d(x, both);
  double sum = 0;
  at::Tensor result = at::zeros_like(x);
  for (int64_t k = -reach; k <= reach; ++k) {
    result.add_(padded.narrow(2, k + reach, x.size(2)), static_cast<double>(k));
    sum += static_cast<double>(k * k);
  }
  return result / sum;
}

}  // namespace

void describe(Schema& schema, MfccConfig& config) {
  schema.option("sample_rate_hz", config.sample_rate_hz, "of the audio").at_least(1000).unit("Hz");
  schema.option("hop", config.hop, "between frames").at_least(1).unit("samples");
  schema.option("window", config.window, "of a frame").at_least(2).unit("samples");
  schema.option("mels", config.mels, "mel bands").at_least(2);
  schema.option("coefficients", config.coefficients, "kept of their cosine transform").at_least(1);
  schema.option("low_hz", config.low_hz, "where the lowest band begins").at_least(0).unit("Hz");
  schema.option("preemphasis", config.preemphasis, "share of the sample before that is subtracted")
      .at_least(0)
      .at_most(1);
  schema.option("lifter", config.lifter, "evens out the coefficients' sizes; 0: off").at_least(0);
  schema.option("delta_window", config.delta_window, "frames that a derivative is taken over").at_least(3);
}

Mfcc::Mfcc(const MfccConfig& config) : config_(config) {
  require(config.window >= config.hop, "[mfcc] expected a window of at least the hop {}, got {}", config.hop,
          config.window);
  require(config.coefficients <= config.mels, "[mfcc] {} coefficients need as many mels, got {}",
          config.coefficients, config.mels);
  n_fft_ = 1;
  while (n_fft_ < config.window) n_fft_ *= 2;
  window_ = at::pow(0.5 - 0.5 * at::cos(at::arange(config.window, at::kFloat) *
                                        (2 * M_PI / static_cast<double>(config.window - 1))),
                    0.85);  // Povey's
  filters_ = kaldi_filters(n_fft_, config);
  cosines_ = liftered_cosines(config);
}

at::Tensor Mfcc::operator()(const at::Tensor& audio) const {
  at::Tensor x = centred_windows(audio, config_.window, config_.hop);  // [batch, frames, window]
  x = x - x.mean(-1, true);
  const at::Tensor before = at::cat({x.narrow(-1, 0, 1), x.narrow(-1, 0, config_.window - 1)}, -1);
  x = (x - config_.preemphasis * before) * sent_to(x.device(), window_);
  const at::Tensor power = at::fft_rfft(x, n_fft_).abs().square();
  const at::Tensor cepstrum =
      at::matmul(at::matmul(power, sent_to(x.device(), filters_)).clamp_min(kFloor).log(),
                 sent_to(x.device(), cosines_))
          .transpose(1, 2);
  const at::Tensor velocity = slopes(cepstrum, config_.delta_window);
  const at::Tensor all = at::cat({cepstrum, velocity, slopes(velocity, config_.delta_window)}, 1);
  return all.transpose(1, 2).contiguous();
}

}  // namespace melete

#include "nn/tone_bank.h"

#include <algorithm>
#include <cmath>

#include "core/autocast.h"
#include "core/base/error.h"
#include "core/base/random.h"
#include "core/device.h"
#include "nn/spectrum.h"

namespace melete {

namespace {

constexpr double kReachSeconds = 0.128;
constexpr int64_t kNoiseFrames = 256;  // 2.6 seconds at 100 frames a second

// Of bands that lie side by side, each as strong as a sine of amplitude 1. [bands, samples]
at::Tensor noise_by_band(int64_t bands, int64_t samples, int64_t rate_hz) {
  Rng rng(random_key(0, "noise of a tone bank"));
  at::Tensor white = at::empty({samples});
  for (int64_t i = 0; i < samples; ++i) white.data_ptr<float>()[i] = static_cast<float>(rng.normal());
  const at::Tensor filters = mel_filters(samples, bands, rate_hz).sqrt().t();  // [bands, bins]
  const at::Tensor noise = at::fft_irfft(at::fft_rfft(white).unsqueeze(0) * filters, samples);
  const at::Tensor strength = noise.square().mean(1, true).sqrt();
  return noise * (std::sqrt(0.5) / strength.clamp_min(1e-6));
}

}  // namespace

int64_t ToneBankConfig::reach() const {
  const double hops = kReachSeconds * static_cast<double>(sample_rate_hz) / static_cast<double>(hop);
  return std::max<int64_t>(1, static_cast<int64_t>(std::ceil(hops))) * hop;
}

ToneBank::ToneBank(const ToneBankConfig& config)
    : config_(config), scale_(std::sqrt(static_cast<double>(config.hop) / 2)) {
  const at::Tensor note =
      at::arange(config.tones, at::kDouble) + static_cast<double>(config.lowest_note - 69);
  const at::Tensor hz = 440 * at::exp2(note / 12);
  require(2 * hz[-1].item<double>() < static_cast<double>(config.sample_rate_hz),
          "[tone bank] {} semitones from note {} on reach {:.0f} Hz, more than half the rate of {} Hz; try "
          "fewer tones",
          config.tones, config.lowest_note, hz[-1].item<double>(), config.sample_rate_hz);
  cycles_ = hz / static_cast<double>(config.sample_rate_hz);
  phases_ = at::empty_like(cycles_);
  Rng rng(random_key(0, "phases of a tone bank"));
  for (int64_t i = 0; i < config.tones; ++i) phases_.data_ptr<double>()[i] = rng.uniform();

  // Windows just long enough to tell a semitone from the next: higher notes begin and end at a moment.
  const int64_t reach = config.reach();
  const at::Tensor time = at::arange(-reach, reach, at::kDouble).unsqueeze(1) + 0.5;
  const at::Tensor length =
      (2 / (cycles_ * (std::exp2(1.0 / 12) - 1))).clamp(2 * config.hop, 2 * reach).unsqueeze(0);
  const at::Tensor window =
      (0.5 + 0.5 * at::cos(2 * M_PI * time / length)) * (time.abs() < length / 2);  // [2 * reach, tones]
  const at::Tensor weight = window * (2 * scale_ / window.sum(0, true));
  const at::Tensor angle = 2 * M_PI * time * cycles_;
  waves_ = at::cat({weight * at::cos(angle), weight * at::sin(angle)}, 1).to(at::kFloat).contiguous();

  const int64_t n = 2 * config.hop;
  band_window_ = window_of("hann", n);
  // By Parseval: the power in a band, as the square of a sine's amplitude.
  const double power = static_cast<double>(n) * band_window_.square().sum().item<double>() / 4;
  band_filters_ = mel_filters(n, config.noise_bands, config.sample_rate_hz) * (scale_ * scale_ / power);
  noise_ = noise_by_band(config.noise_bands, kNoiseFrames * config.hop, config.sample_rate_hz)
               .unflatten(1, {kNoiseFrames, config.hop});
}

at::Tensor ToneBank::analyse(const at::Tensor& wave) const {
  const int64_t hop = config_.hop, reach = config_.reach(), around = 2 * reach - hop;
  require(wave.dim() == 2 && wave.size(1) > around && (wave.size(1) - around) % hop == 0,
          "[tone bank] expected [rows, {} samples and whole hops of {}], got {} samples", around, hop,
          wave.size(-1));
  const AutocastScope float32(wave.device().type(), false);  // a transform, not a layer
  const auto here = [&](const at::Tensor& x) { return sent_to(wave.device(), x); };
  const auto halves = at::matmul(wave.unfold(1, 2 * reach, hop), here(waves_)).chunk(2, -1);
  const at::Tensor close = wave.narrow(1, reach - hop, wave.size(1) - 2 * (reach - hop));
  const at::Tensor power = at::fft_rfft(close.unfold(1, 2 * hop, hop) * here(band_window_)).abs().square();
  return at::cat({at::hypot(halves[0], halves[1]), at::sqrt(at::matmul(power, here(band_filters_)))}, 2);
}

at::Tensor ToneBank::sounds(int64_t first, int64_t frames) const {
  const int64_t hop = config_.hop;
  const at::Tensor sample = at::arange(first * hop, (first + frames) * hop, at::kDouble);
  const at::Tensor cycles =
      (cycles_.unsqueeze(1) * sample.unsqueeze(0) + phases_.unsqueeze(1)).remainder(1).to(at::kFloat);
  const at::Tensor number = at::arange(first, first + frames, at::kLong).remainder_(kNoiseFrames);
  const at::Tensor tones = at::cos(2 * M_PI * cycles).unflatten(1, {frames, hop});
  return at::cat({tones, noise_.index_select(1, number)}).transpose(0, 1) / scale_;
}

at::Tensor ToneBank::synthesise(const at::Tensor& levels, int64_t first, at::Tensor* before) const {
  const int64_t frames = levels.size(1), hop = config_.hop;
  const AutocastScope float32(levels.device().type(), false);
  const at::Tensor now = in_float(levels);
  const at::Tensor start =
      before != nullptr && before->defined() ? before->unsqueeze(1) : at::zeros_like(now.narrow(1, 0, 1));
  if (before != nullptr) *before = now.select(1, frames - 1).contiguous();
  const at::Tensor earlier = at::cat({start, now.narrow(1, 0, frames - 1)}, 1);
  const at::Tensor rising = (at::arange(hop, at::kFloat) + 0.5) / static_cast<double>(hop);
  const at::Tensor each = sounds(first, frames);
  const at::Tensor faded = sent_to(now.device(), at::cat({each * (1 - rising), each * rising}, 1));
  // [frames, rows, 2 * levels] x [frames, 2 * levels, hop]
  return at::bmm(at::cat({earlier, now}, 2).transpose(0, 1), faded).transpose(0, 1).flatten(1);
}

}  // namespace melete

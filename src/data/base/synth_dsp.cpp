#include "data/base/synth_dsp.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>

namespace melete {

Oscillator::Oscillator(double frequency_hz, double phase_radians, int rate_hz)
    : real_(std::cos(phase_radians)),
      imaginary_(std::sin(phase_radians)),
      step_real_(std::cos(kTau * frequency_hz / rate_hz)),
      step_imaginary_(std::sin(kTau * frequency_hz / rate_hz)) {}

double Oscillator::next() {
  const double value = imaginary_;
  const double real = real_ * step_real_ - imaginary_ * step_imaginary_;
  imaginary_ = real_ * step_imaginary_ + imaginary_ * step_real_;
  real_ = real;
  return value;
}

void low_pass(Signal& signal, double cutoff_hz, int rate_hz) {
  const double keep = std::exp(-kTau * std::min(cutoff_hz, 0.45 * rate_hz) / rate_hz);
  double state = 0;
  for (double& sample : signal) sample = state = (1 - keep) * sample + keep * state;
}

void high_pass(Signal& signal, double cutoff_hz, int rate_hz) {
  const double keep = std::exp(-kTau * std::min(cutoff_hz, 0.45 * rate_hz) / rate_hz);
  const double gain = 0.5 * (1 + keep);
  double before = 0, state = 0;
  for (double& sample : signal) {
    state = gain * (sample - before) + keep * state;
    before = std::exchange(sample, state);
  }
}

void mix_into(Signal& track, const Signal& note, int64_t begin_sample, double gain) {
  const auto room = static_cast<int64_t>(track.size()) - begin_sample;
  const int64_t count = std::min(room, static_cast<int64_t>(note.size()));
  for (int64_t i = 0; i < count; ++i)
    track[static_cast<size_t>(begin_sample + i)] += gain * note[static_cast<size_t>(i)];
}

void fade(Signal& signal, int64_t in_samples, int64_t out_samples) {
  const auto size = static_cast<int64_t>(signal.size());
  in_samples = std::min(in_samples, size);
  out_samples = std::min(out_samples, size);
  for (int64_t i = 0; i < in_samples; ++i)
    signal[static_cast<size_t>(i)] *=
        0.5 - 0.5 * std::cos(std::numbers::pi * static_cast<double>(i) / static_cast<double>(in_samples));
  for (int64_t i = 0; i < out_samples; ++i)
    signal[static_cast<size_t>(size - 1 - i)] *=
        0.5 - 0.5 * std::cos(std::numbers::pi * static_cast<double>(i) / static_cast<double>(out_samples));
}

double peak_of(const Signal& signal) {
  double peak = 0;
  for (const double sample : signal) peak = std::max(peak, std::abs(sample));
  return peak;
}

double rms_of(const Signal& signal) {
  if (signal.empty()) return 0;
  return std::sqrt(std::inner_product(signal.begin(), signal.end(), signal.begin(), 0.0) /
                   static_cast<double>(signal.size()));
}

Signal reverberate(const Signal& dry, double decay_seconds, double size, double damping_hz, int rate_hz) {
  // Lengths without a common rhythm, so that echoes fill in instead of falling together.
  constexpr std::array<double, 8> kSeconds = {0.0297, 0.0371, 0.0411, 0.0437, 0.0533, 0.0617, 0.0683, 0.0797};
  constexpr size_t kLines = kSeconds.size();
  std::array<Signal, kLines> lines;
  std::array<double, kLines> gains{}, states{};
  std::array<size_t, kLines> places{};
  for (size_t i = 0; i < kLines; ++i) {
    const double seconds = kSeconds[i] * size;
    lines[i].assign(static_cast<size_t>(std::max(2.0, std::round(seconds * rate_hz))) | 1, 0.0);
    gains[i] = std::pow(10.0, -3.0 * seconds / decay_seconds);
  }
  const double keep = std::exp(-kTau * std::min(damping_hz, 0.45 * rate_hz) / rate_hz);
  Signal wet(dry.size());
  std::array<double, kLines> out{};
  for (size_t n = 0; n < dry.size(); ++n) {
    double total = 0;
    for (size_t i = 0; i < kLines; ++i) {
      states[i] = (1 - keep) * lines[i][places[i]] + keep * states[i];
      out[i] = gains[i] * states[i];
      total += out[i];
    }
    // Householder mixing: every line hears every other and no energy is added.
    const double share = total * 2.0 / kLines;
    for (size_t i = 0; i < kLines; ++i) {
      lines[i][places[i]] = (i % 2 == 0 ? dry[n] : -dry[n]) + out[i] - share;
      if (++places[i] == lines[i].size()) places[i] = 0;
      wet[n] += (i % 4 < 2 ? out[i] : -out[i]);
    }
    wet[n] /= std::sqrt(static_cast<double>(kLines));
  }
  return wet;
}

}  // namespace melete

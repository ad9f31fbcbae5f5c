// The few pieces of signal processing that the synthesizers share. Double precision, one sample type, no
// state kept between calls, so that a piece is the same wherever and in whatever order it is made.
#pragma once

#include <cstdint>
#include <numbers>
#include <vector>

namespace melete {

inline constexpr double kTau = 2.0 * std::numbers::pi;

using Signal = std::vector<double>;

// A sine that costs one complex multiplication per sample.
class Oscillator {
 public:
  Oscillator(double frequency_hz, double phase_radians, int rate_hz);
  double next();

 private:
  double real_, imaginary_, step_real_, step_imaginary_;
};

// One-pole filters; cutoff below half the rate.
void low_pass(Signal& signal, double cutoff_hz, int rate_hz);
void high_pass(Signal& signal, double cutoff_hz, int rate_hz);

// Adds `gain` times `note` to `track` from `begin_sample` on; what would go past the end is left out.
void mix_into(Signal& track, const Signal& note, int64_t begin_sample, double gain);

// Raised-cosine fades at both ends.
void fade(Signal& signal, int64_t in_samples, int64_t out_samples);

double peak_of(const Signal& signal);
double rms_of(const Signal& signal);

// A feedback delay network of eight lines: what a room adds to `dry`, of the same length. decay_seconds is
// the time to fall by 60 dB; size 1 is a hall.
Signal reverberate(const Signal& dry, double decay_seconds, double size, double damping_hz, int rate_hz);

}  // namespace melete

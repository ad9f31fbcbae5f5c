// Sound as levels, frame by frame: how loud each semitone sounds, and how loud the noise in each band is.
// Back in sound, tones come from oscillators that run on for ever and noise from one that is always the same:
// phases are nobody's business, so whatever makes such frames can be wrong about levels only.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>

namespace melete {

struct ToneBankConfig {
  int64_t sample_rate_hz = 16000;
  int64_t hop = 160;         // samples between frames
  int64_t lowest_note = 33;  // MIDI's number: A1, 55 Hz
  int64_t tones = 84;        // a semitone apart
  int64_t noise_bands = 28;  // evenly spaced in mels, up to half the rate

  // Samples on either side of a moment that are listened to: the lowest notes can be told apart after a
  // quarter of a second only. Whole hops.
  int64_t reach() const;
};

class ToneBank {
 public:
  explicit ToneBank(const ToneBankConfig& config);

  int64_t levels() const { return config_.tones + config_.noise_bands; }
  const ToneBankConfig& config() const { return config_; }

  // wave [rows, reach - hop + frames * hop + reach] -> [rows, frames, levels], of the moments at which the
  // frames' own samples end. A sine of amplitude 1, or noise as strong, measures sqrt(hop / 2), which is what
  // it measures in a lapped transform.
  at::Tensor analyse(const at::Tensor& wave) const;
  // levels [rows, frames, levels] -> [rows, frames * hop]; levels go in straight lines from frame to frame.
  // first: the number of the first frame in the sound. before: the frame before it [rows, levels], undefined
  // for silence; set to the last one.
  at::Tensor synthesise(const at::Tensor& levels, int64_t first, at::Tensor* before = nullptr) const;

 private:
  at::Tensor sounds(int64_t first, int64_t frames) const;  // each at level 1, [frames, levels, hop]

  ToneBankConfig config_;
  double scale_;             // from amplitudes to levels
  at::Tensor cycles_;        // [tones] a sample, double
  at::Tensor phases_;        // [tones] cycles, double
  at::Tensor waves_;         // [2 * reach, 2 * tones]: windowed cosines, then sines
  at::Tensor band_window_;   // [2 * hop]
  at::Tensor band_filters_;  // [hop + 1, noise_bands]
  at::Tensor noise_;         // [noise_bands, frames until it repeats, hop]
};

}  // namespace melete

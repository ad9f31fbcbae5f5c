// How much of speech can be understood: correlations of its third-octave bands over time.
//   STOI   Taal, Hendriks, Heusdens, Jensen 2011, "An algorithm for intelligibility prediction of
//          time-frequency weighted noisy speech"
//   ESTOI  Jensen, Taal 2016, "An algorithm for predicting the intelligibility of speech masked by modulated
//          noise maskers"
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <optional>

#include "nn/spectrum.h"

namespace melete {

struct Intelligibility {
  double stoi = 0;      // 1: every band rises and falls as in the original
  double extended = 0;  // ESTOI; 1: so does the shape over the bands at every moment
};

// clean, heard [samples] of the same sound. Nothing when less than 0.4 s of it is not silence.
std::optional<Intelligibility> intelligibility(const at::Tensor& clean, const at::Tensor& heard,
                                               int64_t sample_rate_hz);

// What ESTOI asks for, as a loss: shapes of third-octave bands over 0.4 s, each band brought to one level
// over time and each moment over the bands, so that a consonant counts as much as the vowel beside it. 0 for
// equal sounds, 1 for unrelated ones. Differs from the figure in what rounding would blow up (quiet bands
// count less, instead of frames being left out) and keeps the sound's own rate, with bands up to half of it.
class BandShapeLoss {
 public:
  explicit BandShapeLoss(int64_t sample_rate_hz);
  at::Tensor operator()(const at::Tensor& real, const at::Tensor& fake) const;  // [rows, samples] each

 private:
  at::Tensor magnitudes(const at::Tensor& wave) const;  // [rows, samples] -> [rows, bands, frames]

  StftConfig stft_;
  at::Tensor bands_;  // [bins, bands]
};

}  // namespace melete

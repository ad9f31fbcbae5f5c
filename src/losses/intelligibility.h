// How much of speech can be understood: correlations of its third-octave bands over time.
//   STOI   Taal, Hendriks, Heusdens, Jensen 2011, "An algorithm for intelligibility prediction of
//          time-frequency weighted noisy speech"
//   ESTOI  Jensen, Taal 2016, "An algorithm for predicting the intelligibility of speech masked by modulated
//          noise maskers"
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <optional>

namespace melete {

struct Intelligibility {
  double stoi = 0;      // 1: every band rises and falls as in the original
  double extended = 0;  // ESTOI; 1: so does the shape over the bands at every moment
};

// clean, heard [samples] of the same sound. Nothing when less than 0.4 s of it is not silence.
std::optional<Intelligibility> intelligibility(const at::Tensor& clean, const at::Tensor& heard,
                                               int64_t sample_rate_hz);

}  // namespace melete

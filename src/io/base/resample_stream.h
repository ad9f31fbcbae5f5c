// Resampling of a sound that arrives in pieces: the same samples as in one go, bit for bit.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "io/base/resample.h"

namespace melete {

class ResampleStream {
 public:
  ResampleStream(int from_hz, int to_hz) : resampler_(from_hz, to_hz) {}

  std::vector<float> push(std::span<const float> samples);  // what can be told for certain by now
  std::vector<float> finish();                              // the rest

 private:
  std::vector<float> emit(int64_t until);

  Resampler resampler_;
  std::vector<float> held_;  // input from frame held_begin_ on
  int64_t held_begin_ = 0, received_ = 0, emitted_ = 0;
};

}  // namespace melete

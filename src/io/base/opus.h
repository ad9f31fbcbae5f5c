// A sound through Opus and back: what the best known classical codec makes of it at a given rate.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace melete {

struct OpusResult {
  std::vector<float> samples;  // as many as went in, at the same rate, aligned
  double bits_per_second = 0;  // of the packets, as they came out
  double encode_seconds = 0, decode_seconds = 0;
};

// Mono at any rate: Opus works at 8, 12, 16, 24 or 48 kHz, and other rates are resampled to the next higher
// of these and back. The encoder's delay is taken off.
OpusResult through_opus(std::span<const float> mono, int rate_hz, int bits_per_second);

}  // namespace melete

// How loud each semitone sounds, frame by frame: what music is about and cepstra leave out. Folded into 12
// pitch classes it is a chroma, which knows the harmony and neither octave nor instrument.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>

#include "config/schema.h"

namespace melete {

struct SemitonesConfig {
  int64_t sample_rate_hz = 16000;
  int64_t hop = 2000;        // samples between frames: 8 a second
  int64_t window = 8000;     // samples of a frame: half a second tells semitones from 35 Hz on
  int64_t lowest_note = 45;  // MIDI's number: A2, 110 Hz
  int64_t octaves = 4;
  bool fold = true;  // into pitch classes
};
void describe(Schema& schema, SemitonesConfig& config);

class Semitones {
 public:
  using Config = SemitonesConfig;
  static constexpr const char* kName = "semitones";

  explicit Semitones(const SemitonesConfig& config);
  // audio [batch, samples] -> [batch, samples / hop, dim]; a row has length 1, in silence less. Frame t is
  // centred on the middle of the samples t * hop .. (t + 1) * hop, with silence around the recording.
  at::Tensor operator()(const at::Tensor& audio) const;
  const SemitonesConfig& config() const { return config_; }
  int64_t dim() const { return config_.fold ? 12 : 12 * config_.octaves; }
  at::Tensor frequencies_hz() const;  // [12 * octaves]

 private:
  SemitonesConfig config_;
  at::Tensor waves_;  // [window, 2 * 12 * octaves]: windowed cosines, then sines
};

}  // namespace melete

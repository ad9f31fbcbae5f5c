// The power spectrogram that the audio tower sees, of recordings of equal or unequal length.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <string>

namespace melete {
class Schema;
}

namespace melete::musiclm {

struct SpectrogramConfig {
  int64_t n_fft = 128;
  int64_t window = 24;            // samples, Hann, centred in the n_fft frame
  int64_t hop = 0;                // samples; 0: half the window
  double power = 2;               // of the magnitudes
  int64_t padding = 0;            // zeros before and after a recording
  bool centred = true;            // frame i is centred on sample i * hop; else it begins there
  std::string edges = "reflect";  // what a centred frame sees beyond the ends: reflect, constant, replicate,
                                  // circular

  int64_t bins() const { return n_fft / 2 + 1; }
  int64_t hop_samples() const { return hop > 0 ? hop : window / 2; }
  int64_t frames(int64_t samples) const;  // of a recording; 0 when it is too short
};
void describe(Schema& schema, SpectrogramConfig& config);

// audio [batch, samples]; lengths [batch] int64 in samples, or undefined: all are whole. A recording's frames
// are the same whatever it is padded with. -> [batch, bins, frames] float32, zero beyond a recording's end
at::Tensor power_spectrogram(const at::Tensor& audio, const at::Tensor& lengths,
                             const SpectrogramConfig& config);

}  // namespace melete::musiclm

// Mel-frequency cepstral coefficients with their first and second derivatives in time: Kaldi's recipe, which
// HuBERT's first iteration clusters.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>

#include "config/schema.h"

namespace melete {

struct MfccConfig {
  int64_t sample_rate_hz = 16000;
  int64_t hop = 320;     // samples between frames: 50 a second, as HuBERT's
  int64_t window = 640;  // samples of a frame
  int64_t mels = 40;
  int64_t coefficients = 13;
  double low_hz = 20;
  double preemphasis = 0.97;
  int64_t lifter = 22;       // evens out the coefficients' sizes; 0: off
  int64_t delta_window = 5;  // frames
};
void describe(Schema& schema, MfccConfig& config);

class Mfcc {
 public:
  using Config = MfccConfig;
  static constexpr const char* kName = "mfcc";

  explicit Mfcc(const MfccConfig& config);
  // audio [batch, samples] -> [batch, samples / hop, 3 * coefficients]; frame t is centred on the middle of
  // the samples t * hop .. (t + 1) * hop, with silence around the recording.
  at::Tensor operator()(const at::Tensor& audio) const;
  const MfccConfig& config() const { return config_; }
  int64_t dim() const { return 3 * config_.coefficients; }

 private:
  MfccConfig config_;
  int64_t n_fft_ = 0;
  at::Tensor window_;   // [window]
  at::Tensor filters_;  // [n_fft / 2 + 1, mels]
  at::Tensor cosines_;  // [mels, coefficients], liftered
};

}  // namespace melete

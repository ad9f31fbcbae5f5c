// Sound as frames of mel bands, in one of the scales that vocoders are trained on.
#pragma once

#include <ATen/ATen.h>

#include <nlohmann/json.hpp>
#include <string>

#include "nn/inverse_spectrum.h"

namespace melete {

class Schema;

struct MelFramesConfig {
  int64_t rate_hz = 24000;
  int64_t mels = 100;
  int64_t n_fft = 1024;
  int64_t window = 1024;
  int64_t hop = 256;
  double high_hz = 0;            // where the highest band ends; 0: half the rate
  std::string edges = "centre";  // centre: samples / hop + 1 frames; same: samples / hop
  // log_magnitude: natural logarithm of mel bands of magnitudes, Vocos's own; decibels, power: of mel bands
  // of power, as voicebox-pytorch's MelVoco has them.
  std::string values = "log_magnitude";
  // Of log_magnitude: magnitudes below it count as it. A recording that is digitally silent somewhere would
  // else have values there that are further from speech than speech is from noise.
  double floor = 1e-7;
};
void describe(Schema& schema, MelFramesConfig& config);
// What names these frames: settings, but for younger ones at their defaults (nn/identity.h).
nlohmann::ordered_json identifying_settings(const MelFramesConfig& config);

class MelFrames {
 public:
  explicit MelFrames(const MelFramesConfig& config);
  at::Tensor operator()(const at::Tensor& audio) const;  // [batch, samples] -> [batch, frames, mels]
  int64_t frames(int64_t samples) const;
  const MelFramesConfig& config() const { return config_; }

 private:
  MelFramesConfig config_;
  at::Tensor filters_;  // [n_fft / 2 + 1, mels]
};

}  // namespace melete

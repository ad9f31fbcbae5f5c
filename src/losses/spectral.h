// Distances between sounds by their spectra.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "config/schema.h"
#include "nn/spectrum.h"

namespace melete {

struct MelLossConfig {
  std::vector<int64_t> window_powers = {6, 7, 8, 9, 10, 11};  // windows of 2^power samples
  std::vector<int64_t> n_ffts = {512};                        // one, or one a window; never below the window
  std::vector<int64_t> mels = {64};                           // likewise
  bool normalized = false;
  double floor = 1e-5;  // below this, energies count as silence; lower values make silence outweigh sound
};
void describe(Schema& schema, MelLossConfig& config);

// Equations (4) and (5) of the SoundStream paper: over several window lengths, L1 of mel spectrograms plus
// weighted L2 of their logarithms.
class MultiScaleMelLoss {
 public:
  MultiScaleMelLoss(const MelLossConfig& config, int64_t sample_rate_hz);
  at::Tensor operator()(const at::Tensor& real, const at::Tensor& fake) const;  // [rows, samples] each

 private:
  struct Scale {
    MelSpectrogram mel;
    double log_weight;
  };
  std::vector<Scale> scales_;
  double floor_;
};

}  // namespace melete

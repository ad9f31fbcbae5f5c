// Distances between sounds by their spectra.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <string>
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
  // "paper": as below. "log": the mean absolute difference of logarithms, mean over windows, as in Descript's
  // codec (Kumar et al. 2023): every band and every moment counts alike, however quiet.
  std::string distance = "paper";
};
void describe(Schema& schema, MelLossConfig& config);

// Equations (4) and (5) of the SoundStream paper: over several window lengths, L1 of mel spectrograms plus
// weighted L2 of their logarithms; or the mean difference of logarithms alone.
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
  bool logarithms_only_;
};

struct RootSpectrumLossConfig {
  std::vector<int64_t> window_powers = {8, 9, 10};  // windows of 2^power samples
  double power = 0.3;                               // of magnitudes: what is quiet counts, too
  double phase_share = 0.5;                         // of the loss that phases count for
  double phase_below_hz = 0;                        // where phases count; 0: everywhere
};
void describe(Schema& schema, RootSpectrumLossConfig& config);

// Spectra whose magnitudes are raised to a small power, compared with and without their phases, beside the
// real one's strength (Braun and Tashev 2021): waves are matched in every band that stands out, not only in
// the loudest, and where a phase cannot be matched its magnitude still is.
class RootSpectrumLoss {
 public:
  RootSpectrumLoss(const RootSpectrumLossConfig& config, int64_t sample_rate_hz);
  at::Tensor operator()(const at::Tensor& real, const at::Tensor& fake) const;  // [rows, samples] each

 private:
  RootSpectrumLossConfig config_;
  int64_t sample_rate_hz_;
};

// How strong the error of a wave is beside the wave, in dB, mean over rows: every row counts alike, however
// quiet. Below `floor` (mean square) error and wave are silence. real, fake [rows, samples]
at::Tensor relative_error_db(const at::Tensor& real, const at::Tensor& fake, double floor = 1e-6);

}  // namespace melete

// SpecAugment (Park et al. 2019): spectrograms that are played slower or faster, with a band of frequencies
// and a stretch of time blanked.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

namespace melete {
class Draws;
class Schema;
}  // namespace melete

namespace melete::musiclm {

struct SpecAugmentConfig {
  double stretch = 0.8;         // speeds are drawn between this and one over this; 1: none
  int64_t frequency_mask = 80;  // bins: the widest band that is blanked; 0: none
  int64_t time_mask = 80;       // frames: the longest stretch
  double largest_share = 0.5;   // but at most this share of the bins or of a recording's frames
  // musiclm-pytorch's way: no stretch, one band and one stretch for the whole batch, however wide.
  bool as_upstream = false;
};
void describe(Schema& schema, SpecAugmentConfig& config);

// What is done to each row of a batch, drawn before.
struct SpecAugmentation {
  double speed = 1;                   // of the whole batch: frame i shows what was at i * speed
  at::Tensor first_bin, end_bin;      // [batch] int64: bins [first, end) are blank
  at::Tensor first_frame, end_frame;  // [batch] int64, counted after the stretch
  SpecAugmentation rows(int64_t begin, int64_t end) const;
};

// Frames that are left of so many: as many at most, so that a slower recording loses its end.
int64_t stretched_frames(int64_t frames, double speed);

// frames: how many each row has
SpecAugmentation draw_augmentation(const SpecAugmentConfig& config, int64_t bins,
                                   const std::vector<int64_t>& frames, Draws& draws);

// spectrogram [batch, bins, frames], zero beyond a row's end -> the same with as many frames or fewer
at::Tensor augment(const at::Tensor& spectrogram, const SpecAugmentation& how);

}  // namespace melete::musiclm

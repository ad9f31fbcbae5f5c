// Spectra back to sound.
#pragma once

#include <ATen/ATen.h>

#include "nn/spectrum.h"

namespace melete {

enum class FrameEdges {
  centre,  // frame i is centred on sample i * hop, as stft() has them: (frames - 1) * hop samples come back
  same,    // every frame stands for a hop: frames * hop samples come back
};

// Overlap-add of windowed frames, divided by the windows' own overlap.
// spectrum complex [rows, n_fft / 2 + 1, frames] -> [rows, samples]
at::Tensor inverse_stft(const at::Tensor& spectrum, const StftConfig& config,
                        FrameEdges edges = FrameEdges::centre);

}  // namespace melete

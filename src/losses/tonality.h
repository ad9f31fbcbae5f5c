// Which notes sound: figures for how well music keeps to a scale.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

namespace melete {

// How much of each pitch class sounds, 0 being C (A is 440 Hz), from spectral peaks between 100 and 2000 Hz
// weighted by their magnitude. wave [rows, samples] -> [rows, 12]; a row adds up to 1, or to 0 in silence.
at::Tensor chroma(const at::Tensor& wave, int64_t rate_hz);

// The share that falls on these pitch classes. chroma [rows, 12] -> [rows]
at::Tensor in_scale_share(const at::Tensor& chroma, const std::vector<int>& pitch_classes);

}  // namespace melete

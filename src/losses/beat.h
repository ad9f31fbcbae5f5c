// When something begins to sound, and whether it does so again after a beat: figures for how well music keeps
// its time.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>

namespace melete {

constexpr int64_t kOnsetsPerSecond = 100;

// How much louder the bands of the spectrum grow, whatever the level. wave [rows, samples] -> [rows, frames],
// kOnsetsPerSecond
at::Tensor onset_strength(const at::Tensor& wave, int64_t rate_hz);

// How alike onsets are to those a beat later: their correlation, 1 where everything comes again, about 0
// where nothing does, or in silence. onsets [rows, frames] -> [rows]
at::Tensor beat_strength(const at::Tensor& onsets, double beat_seconds);

}  // namespace melete

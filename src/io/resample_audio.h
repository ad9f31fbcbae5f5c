// Resampling of tensors.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>

namespace melete {

// audio [..., samples] at one rate -> [..., ceil(samples * to / from)] float32 at another; a no-op when they
// are the same.
at::Tensor resample_audio(const at::Tensor& audio, int64_t from_hz, int64_t to_hz);

}  // namespace melete

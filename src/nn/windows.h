// Sound as overlapping windows around evenly spaced frames.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>

namespace melete {

// audio [batch, samples] -> [batch, samples / hop, window] float32; window t is centred on the middle of the
// samples t * hop .. (t + 1) * hop, with silence around the recording. An Error where there is no whole hop.
at::Tensor centred_windows(const at::Tensor& audio, int64_t window, int64_t hop);

}  // namespace melete

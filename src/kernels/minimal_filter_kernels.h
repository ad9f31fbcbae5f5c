// The inner loops of minimal filtering, compiled for several instruction sets.
#pragma once

#include <cstdint>

namespace melete::minimal_filter {

// A 1-d transform of `lines` lines: line l maps in[l * in + i] to out[l * out + k], each a pointer to `count`
// floats once its side's offset is added. `bias` (may be null) is added to every output.
using Pass = void (*)(const float* const* in, int64_t in_offset, float* const* out, int64_t out_offset,
                      int64_t lines, int64_t count, const float* bias);

struct Kernels {
  Pass (*filter)(int points, int taps);
  Pass (*filter_gradient)(int points, int taps);
  Pass (*input)(int points);
  Pass (*output)(int points, int outputs);
  Pass (*output_gradient)(int points, int outputs);
};
const Kernels& kernels();

}  // namespace melete::minimal_filter

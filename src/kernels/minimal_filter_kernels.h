// The inner loops of minimal filtering, compiled for several instruction sets.
#pragma once

#include <cstdint>

namespace melete::minimal_filter {

// Channels come in panels of this many.
constexpr int64_t kPanel = 32;
// A product's rows are padded to a multiple of this.
constexpr int64_t kRows = 12;

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
  // c [rows, columns] = start + a [rows, depth] * b; start may be null (zero), and is laid out like c. b is
  // [columns / kPanel, depth, kPanel]; rows are a multiple of kRows. Steps are from row to row.
  void (*product)(const float* a, int64_t a_step, const float* b, const float* start, float* c,
                  int64_t c_step, int64_t rows, int64_t depth, int64_t columns);
  // c [columns / kPanel, depth, kPanel] = transpose(a) * b over `rows`, or added to c
  void (*transposed_product)(const float* a, int64_t a_step, const float* b, int64_t b_step, float* c,
                             bool add, int64_t rows, int64_t depth, int64_t columns);
};
const Kernels& kernels();

}  // namespace melete::minimal_filter

// Small matrix products whose right side is laid out in panels of columns: near a core's peak where a BLAS
// spends its time on packing. Serial; callers share out the work.
#pragma once

#include <cstdint>

namespace melete {

// Columns come in panels of this many.
constexpr int64_t kPanel = 32;
// A product's rows are a multiple of this,
constexpr int64_t kPanelRows = 12;
// and a transposed product's rows of this.
constexpr int64_t kTransposedRows = 8;

constexpr int64_t divide_up(int64_t count, int64_t by) {
  return (count + by - 1) / by;
}
constexpr int64_t round_up(int64_t count, int64_t to) {
  return divide_up(count, to) * to;
}

struct PanelProducts {
  // c [rows, columns] = start + a [rows, depth] * b; start may be null (zero), and is laid out like c. b is
  // [columns / kPanel, depth, kPanel]; rows are a multiple of kPanelRows. Steps are from row to row.
  void (*product)(const float* a, int64_t a_step, const float* b, const float* start, float* c,
                  int64_t c_step, int64_t rows, int64_t depth, int64_t columns);
  // c [columns / kPanel, depth, kPanel] = transpose(a) * b over `rows`, or added to c; depth is a multiple of
  // kTransposedRows
  void (*transposed_product)(const float* a, int64_t a_step, const float* b, int64_t b_step, float* c,
                             bool add, int64_t rows, int64_t depth, int64_t columns);
};
const PanelProducts& panel_products();

// The product for any number of rows.
void panel_product(const float* a, int64_t a_step, const float* b, float* c, int64_t c_step, int64_t rows,
                   int64_t depth, int64_t columns);

}  // namespace melete

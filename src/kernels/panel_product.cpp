#include "kernels/panel_product.h"

#include <algorithm>
#include <vector>

#include "kernels/vectors.h"

namespace melete {

namespace {

constexpr int64_t kDepth = 128;  // rows of a panel that stay in the first cache

// Rows x (Width * Vectors) of a product; the panel is kPanel wide.
template <int Width, int Vectors, int Rows>
MELETE_INLINE void product_tile(const float* a, int64_t a_step, const float* b, const float* start, float* c,
                                int64_t c_step, int64_t depth) {
  using V = typename Lanes<Width>::Vector;
  V sums[Rows][Vectors];
#pragma GCC unroll 16
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v)
      if (start)
        load<Width>(sums[r][v], start + r * c_step + v * Width);
      else
        sums[r][v] = V{};
  // Three rows to a pointer: twelve pointers would not fit the registers.
  const float* rows[(Rows + 2) / 3];
  for (int i = 0; i < (Rows + 2) / 3; ++i) rows[i] = a + 3 * i * a_step;
  for (int64_t k = 0; k < depth; ++k, b += kPanel) {
    V right[Vectors];
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) {
      load<Width>(right[v], b + v * Width);
      __builtin_prefetch(b + kDepth * kPanel + v * Width, 0, 2);  // what comes next, from memory
    }
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r) {
      const float left = rows[r / 3][k + (r % 3) * a_step];
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; ++v) sums[r][v] += left * right[v];
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) store<Width>(sums[r][v], c + r * c_step + v * Width);
}

// Rows x (Width * Vectors) of a transposed product.
template <int Width, int Vectors, int Rows>
MELETE_INLINE void transposed_tile(const float* a, int64_t a_step, const float* b, int64_t b_step, float* c,
                                   bool add, int64_t count) {
  using V = typename Lanes<Width>::Vector;
  V sums[Rows][Vectors];
#pragma GCC unroll 16
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v)
      if (add)
        load<Width>(sums[r][v], c + r * kPanel + v * Width);
      else
        sums[r][v] = V{};
  for (int64_t t = 0; t < count; ++t, a += a_step, b += b_step) {
    V right[Vectors];
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) load<Width>(right[v], b + v * Width);
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; ++v) sums[r][v] += a[r] * right[v];
  }
#pragma GCC unroll 16
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) store<Width>(sums[r][v], c + r * kPanel + v * Width);
}

// Tiles are sized by the registers, and are functions of their own: inlined, they lose registers to the loops
// around them.
#define MELETE_TILES(suffix, attribute, width, vectors, rows, transposed_rows)                           \
  struct Set_##suffix {                                                                                  \
    attribute __attribute__((noinline)) static void tile(const float* a, int64_t a_step, const float* b, \
                                                         const float* start, float* c, int64_t c_step,   \
                                                         int64_t depth) {                                \
      product_tile<width, vectors, rows>(a, a_step, b, start, c, c_step, depth);                         \
    }                                                                                                    \
    attribute __attribute__((noinline)) static void tile_transposed(const float* a, int64_t a_step,      \
                                                                    const float* b, int64_t b_step,      \
                                                                    float* c, bool add, int64_t count) { \
      transposed_tile<width, vectors, transposed_rows>(a, a_step, b, b_step, c, add, count);             \
    }                                                                                                    \
    static constexpr int64_t kColumns = width * vectors, kTileRows = rows,                               \
                             kTransposedRows = transposed_rows;                                          \
  };

MELETE_TILES(plain, , 4, 4, 2, 2)
#if defined(__x86_64__)
MELETE_TILES(v3, __attribute__((target("arch=x86-64-v3"))), 8, 2, 6, 4)
MELETE_TILES(v4, __attribute__((target("arch=x86-64-v4"))), 16, 2, 12, 8)
#endif

template <class Set>
void product(const float* a, int64_t a_step, const float* b, const float* start, float* c, int64_t c_step,
             int64_t rows, int64_t depth, int64_t columns) {
  for (int64_t panel = 0; panel < columns; panel += kPanel)
    for (int64_t k = 0; k < depth; k += kDepth, b += kDepth * kPanel) {
      const float* before = k == 0 ? start : c;
      for (int64_t row = 0; row < rows; row += Set::kTileRows)
        for (int64_t part = 0; part < kPanel; part += Set::kColumns) {
          const int64_t at = row * c_step + panel + part;
          Set::tile(a + row * a_step + k, a_step, b + part, before ? before + at : nullptr, c + at, c_step,
                    std::min(kDepth, depth - k));
        }
      if (depth - k < kDepth) b -= (k + kDepth - depth) * kPanel;
    }
}

template <class Set>
void transposed_product(const float* a, int64_t a_step, const float* b, int64_t b_step, float* c, bool add,
                        int64_t rows, int64_t depth, int64_t columns) {
  for (int64_t column = 0; column < columns; column += Set::kColumns)
    for (int64_t row = 0; row < depth; row += Set::kTransposedRows)
      Set::tile_transposed(a + row, a_step, b + column, b_step,
                           c + column / kPanel * kPanel * depth + row * kPanel + column % kPanel, add, rows);
}

template <class Set>
constexpr PanelProducts products_of() {
  return {product<Set>, transposed_product<Set>};
}

}  // namespace

const PanelProducts& panel_products() {
  return best_of<PanelProducts>(products_of<Set_plain>()
#if defined(__x86_64__)
                                    ,
                                products_of<Set_v3>(), products_of<Set_v4>()
#endif
  );
}

void panel_product(const float* a, int64_t a_step, const float* b, float* c, int64_t c_step, int64_t rows,
                   int64_t depth, int64_t columns) {
  const auto product = panel_products().product;
  const int64_t whole = rows / kPanelRows * kPanelRows, rest = rows - whole;
  if (whole > 0) product(a, a_step, b, nullptr, c, c_step, whole, depth, columns);
  if (rest == 0) return;
  std::vector<float> room(static_cast<size_t>(kPanelRows * (depth + columns)));
  float *left = room.data(), *right = left + kPanelRows * depth;
  for (int64_t row = 0; row < rest; ++row) std::copy_n(a + (whole + row) * a_step, depth, left + row * depth);
  product(left, depth, b, nullptr, right, columns, kPanelRows, depth, columns);
  for (int64_t row = 0; row < rest; ++row)
    std::copy_n(right + row * columns, columns, c + (whole + row) * c_step);
}

}  // namespace melete

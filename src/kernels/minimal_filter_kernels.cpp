#include "kernels/minimal_filter_kernels.h"

#include <algorithm>

#include "kernels/minimal_filter_transforms.h"

namespace melete::minimal_filter {

namespace {

constexpr int64_t kDepth = 128;  // rows of a panel that stay in the first cache

template <int Width>
struct Lanes {
  typedef float Vector __attribute__((vector_size(Width * 4)));
  typedef float InMemory __attribute__((vector_size(Width * 4), aligned(4), may_alias));
};

template <int Width>
MELETE_INLINE void load(typename Lanes<Width>::Vector& x, const float* from) {
  x = *reinterpret_cast<const typename Lanes<Width>::InMemory*>(from);
}
template <int Width>
MELETE_INLINE void store(const typename Lanes<Width>::Vector& x, float* to) {
  *reinterpret_cast<typename Lanes<Width>::InMemory*>(to) = x;
}

template <int Width, class Transform>
MELETE_INLINE void transform_lines(const float* const* in, int64_t in_offset, float* const* out,
                                   int64_t out_offset, int64_t lines, int64_t count, const float* bias) {
  using V = typename Lanes<Width>::Vector;
  for (int64_t line = 0; line < lines; ++line, in += Transform::in, out += Transform::out)
    for (int64_t at = 0; at < count; at += Width) {
      V x[Transform::in], y[Transform::out];
#pragma GCC unroll 8
      for (int i = 0; i < Transform::in; ++i) load<Width>(x[i], in[i] + in_offset + at);
      Transform::apply(x, y);
      if (bias) {
        V same;
        load<Width>(same, bias + at);
#pragma GCC unroll 8
        for (int i = 0; i < Transform::out; ++i) y[i] += same;
      }
#pragma GCC unroll 8
      for (int i = 0; i < Transform::out; ++i) store<Width>(y[i], out[i] + out_offset + at);
    }
}

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
#define MELETE_KERNELS(suffix, attribute, width, vectors, rows, transposed_rows)                         \
  struct Set_##suffix {                                                                                  \
    template <class Transform>                                                                           \
    attribute static void pass(const float* const* in, int64_t in_offset, float* const* out,             \
                               int64_t out_offset, int64_t lines, int64_t count, const float* bias) {    \
      transform_lines<width, Transform>(in, in_offset, out, out_offset, lines, count, bias);             \
    }                                                                                                    \
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

MELETE_KERNELS(plain, , 4, 4, 2, 2)
#if defined(__x86_64__)
MELETE_KERNELS(v3, __attribute__((target("arch=x86-64-v3"))), 8, 2, 6, 4)
MELETE_KERNELS(v4, __attribute__((target("arch=x86-64-v4"))), 16, 2, 12, 8)
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

// The transform T<points, n> for numbers known only at run time.
template <class Set, template <int, int> class T>
Pass pass_for(int points, int n) {
  switch (points * 10 + n) {
    case 32:
      return Set::template pass<T<3, 2>>;
    case 42:
      return Set::template pass<T<4, 2>>;
    case 43:
      return Set::template pass<T<4, 3>>;
    case 52:
      return Set::template pass<T<5, 2>>;
    case 53:
      return Set::template pass<T<5, 3>>;
    case 54:
      return Set::template pass<T<5, 4>>;
    case 62:
      return Set::template pass<T<6, 2>>;
    case 63:
      return Set::template pass<T<6, 3>>;
    case 64:
      return Set::template pass<T<6, 4>>;
    case 65:
      return Set::template pass<T<6, 5>>;
  }
  return nullptr;
}

template <class Set>
Pass input_pass(int points) {
  switch (points) {
    case 3:
      return Set::template pass<Input<3>>;
    case 4:
      return Set::template pass<Input<4>>;
    case 5:
      return Set::template pass<Input<5>>;
    case 6:
      return Set::template pass<Input<6>>;
  }
  return nullptr;
}

template <class Set>
constexpr Kernels kernels_of() {
  return {pass_for<Set, Filter>,  pass_for<Set, FilterGradient>, input_pass<Set>,
          pass_for<Set, Output>,  pass_for<Set, OutputGradient>, product<Set>,
          transposed_product<Set>};
}

}  // namespace

const Kernels& kernels() {
#if defined(__x86_64__)
  static constexpr Kernels plain = kernels_of<Set_plain>(), v3 = kernels_of<Set_v3>(),
                           v4 = kernels_of<Set_v4>();
  static const Kernels& best = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                                       __builtin_cpu_supports("avx512bw") &&
                                       __builtin_cpu_supports("avx512dq")
                                   ? v4
                               : __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? v3
                                                                                                 : plain;
  return best;
#else
  static constexpr Kernels plain = kernels_of<Set_plain>();
  return plain;
#endif
}

}  // namespace melete::minimal_filter

#include "kernels/frame_conv.h"

#include <ATen/core/ivalue.h>
#include <ATen/Parallel.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <numeric>

#include "kernels/vectors.h"

namespace melete {

namespace {

// x > 0 ? x : exp(x) - 1, by a polynomial on [-ln 2 / 2, ln 2 / 2] and the exponent's bits
template <int Width>
MELETE_INLINE void elu_in_place(typename Lanes<Width>::InMemory& x) {
  using V = typename Lanes<Width>::InMemory;
  using I = typename Lanes<Width>::Integers;
  const V zero = V{}, lowest = zero - 87.f;
  V a = x < zero ? x : zero;
  a = a > lowest ? a : lowest;
  constexpr float kRound = 12582912.f;  // 1.5 * 2^23: adding it leaves an integer in the low bits
  const V n = (a * 1.44269504f + kRound) - kRound;
  const V r = (a - n * 0.693359375f) + n * 2.12194440e-4f;
  V p = r * 1.9875691500e-4f + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  const V small = p * r * r + r;  // exp(r) - 1
  const I power = (__builtin_convertvector(n, I) + 127) << 23;
  const V scale = (V)power;
  const V result = small * scale + (scale - 1.f);
  x = x < zero ? result : x;  // not a number stays so
}

// Rows x (Width * Vectors) columns of the product.
template <int Width, int Vectors, int Rows>
MELETE_INLINE void product_tile(const FrameWindows& w, const float* x, const float* packed, const float* bias,
                                bool elu, float* y, int64_t columns) {
  using V = typename Lanes<Width>::InMemory;
  V sums[Rows][Vectors];
  for (int v = 0; v < Vectors; ++v) {
    const V start = bias ? *reinterpret_cast<const V*>(bias + v * Width) : V{};
    for (int r = 0; r < Rows; ++r) sums[r][v] = start;
  }
  const int64_t step = w.row_step, depth = w.depth;
  for (int64_t tap = 0; tap < w.taps; ++tap) {
    // Three rows to a pointer: twelve pointers would not fit the registers.
    const float* rows[(Rows + 2) / 3];
    for (int i = 0; i < (Rows + 2) / 3; ++i) rows[i] = x + tap * w.tap_step + 3 * i * step;
    for (int64_t c = 0; c < depth; ++c) {
      V weight[Vectors];
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; ++v) weight[v] = *reinterpret_cast<const V*>(packed + v * Width);
      packed += Width * Vectors;
#pragma GCC unroll 16
      for (int r = 0; r < Rows; ++r) {
        const float value = rows[r / 3][c + (r % 3) * step];
#pragma GCC unroll 4
        for (int v = 0; v < Vectors; ++v) sums[r][v] += value * weight[v];
      }
    }
  }
  for (int r = 0; r < Rows; ++r)
    for (int v = 0; v < Vectors; ++v) {
      if (elu) elu_in_place<Width>(sums[r][v]);
      *reinterpret_cast<V*>(y + r * columns + v * Width) = sums[r][v];
    }
}

// Rows [begin, end) of one item, all columns. The last tile is moved back to end with `end`: it computes some
// rows again, which costs less than a narrower tile.
template <class Set, int Width, int Vectors, int Rows>
MELETE_INLINE void product_rows(const FrameWindows& w, const float* x, const float* packed, const float* bias,
                                bool elu, float* y, int64_t columns, int64_t begin, int64_t end) {
  constexpr int64_t kPanel = Width * Vectors;
  for (int64_t column = 0; column < columns; column += kPanel) {
    const float* panel = packed + column * w.taps * w.depth;
    const float* panel_bias = bias ? bias + column : nullptr;
    if (end - begin < Rows) {
      for (int64_t row = begin; row < end; ++row)
        Set::template product_tile<Vectors, 1>(w, x + row * w.row_step, panel, panel_bias, elu,
                                               y + row * columns + column, columns);
      continue;
    }
    for (int64_t row = begin; row < end; row += Rows) {
      const int64_t at = std::min(row, end - Rows);
      Set::template product_tile<Vectors, Rows>(w, x + at * w.row_step, panel, panel_bias, elu,
                                                y + at * columns + column, columns);
    }
  }
}

// Tile of the transposed product: Rows of the result times Width * Vectors columns, added over `count`
// frames.
template <int Width, int Vectors, int Rows>
MELETE_INLINE void transposed_tile(const float* x, int64_t row_step, const float* gradient, int64_t count,
                                   float* result, int64_t columns) {
  using V = typename Lanes<Width>::InMemory;
  V sums[Rows][Vectors];
  for (int r = 0; r < Rows; ++r)
    for (int v = 0; v < Vectors; ++v)
      sums[r][v] = *reinterpret_cast<const V*>(result + r * columns + v * Width);
  for (int64_t t = 0; t < count; ++t, x += row_step, gradient += Width * Vectors) {
    V g[Vectors];
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) g[v] = *reinterpret_cast<const V*>(gradient + v * Width);
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; ++v) sums[r][v] += x[r] * g[v];
  }
  for (int r = 0; r < Rows; ++r)
    for (int v = 0; v < Vectors; ++v) *reinterpret_cast<V*>(result + r * columns + v * Width) = sums[r][v];
}

// Columns [column, column + Width * Vectors) of taps [first, last).
template <class Set, int Width, int Vectors, int Rows>
MELETE_INLINE void transposed_panel(const FrameWindows& w, const float* x, const float* gradient,
                                    int64_t gradient_batch_step, float* result, float* bias_result,
                                    int64_t columns, int64_t column, int64_t first, int64_t last) {
  using V = typename Lanes<Width>::InMemory;
  constexpr int64_t kPanel = Width * Vectors, kFrames = 128;
  alignas(64) float block[kFrames * kPanel];  // one panel of the gradient, close together
  V bias_sums[Vectors] = {};
  for (int64_t item = 0; item < w.batch; ++item)
    for (int64_t begin = 0; begin < w.rows; begin += kFrames) {
      const int64_t count = std::min(kFrames, w.rows - begin);
      const float* from = gradient + item * gradient_batch_step + begin * columns + column;
      for (int64_t t = 0; t < count; ++t)
        for (int v = 0; v < Vectors; ++v) {
          const V g = *reinterpret_cast<const V*>(from + t * columns + v * Width);
          *reinterpret_cast<V*>(block + t * kPanel + v * Width) = g;
          bias_sums[v] += g;
        }
      for (int64_t tap = first; tap < last; ++tap) {
        const float* run = x + item * w.batch_step + begin * w.row_step + tap * w.tap_step;
        float* out = result + tap * w.depth * columns + column;
        int64_t c = 0;
        for (; c + Rows <= w.depth; c += Rows)
          Set::template transposed_tile<Vectors, Rows>(run + c, w.row_step, block, count, out + c * columns,
                                                       columns);
        for (; c < w.depth; ++c)
          Set::template transposed_tile<Vectors, 1>(run + c, w.row_step, block, count, out + c * columns,
                                                    columns);
      }
    }
  if (first == 0)
    for (int v = 0; v < Vectors; ++v) *reinterpret_cast<V*>(bias_result + column + v * Width) = bias_sums[v];
}

#define MELETE_PRODUCT_PARAMETERS                                                                    \
  const FrameWindows &w, const float *x, const float *packed, const float *bias, bool elu, float *y, \
      int64_t columns, int64_t begin, int64_t end
#define MELETE_TRANSPOSED_PARAMETERS                                                                        \
  const FrameWindows &w, const float *x, const float *gradient, int64_t gradient_batch_step, float *result, \
      float *bias_result, int64_t columns, int64_t column, int64_t first, int64_t last

// Tiles are sized by the registers: 32 of 16 floats, or 16 of 8 (4).
template <class Set, int Width, int Vectors, int Rows>
MELETE_INLINE void product_columns(MELETE_PRODUCT_PARAMETERS) {
  if (columns % (Width * Vectors) == 0)
    product_rows<Set, Width, Vectors, Rows>(w, x, packed, bias, elu, y, columns, begin, end);
  else
    product_rows<Set, Width, kFrameColumns / Width, Rows>(w, x, packed, bias, elu, y, columns, begin, end);
}
template <class Set, int Width, int Vectors, int Rows>
MELETE_INLINE void transposed_columns(MELETE_TRANSPOSED_PARAMETERS) {
  if (columns % (Width * Vectors) == 0)
    transposed_panel<Set, Width, Vectors, Rows>(w, x, gradient, gradient_batch_step, result, bias_result,
                                                columns, column, first, last);
  else
    transposed_panel<Set, Width, kFrameColumns / Width, Rows>(w, x, gradient, gradient_batch_step, result,
                                                              bias_result, columns, column, first, last);
}

struct Kernels {
  int64_t widest_panel, tile_rows;
  void (*product)(MELETE_PRODUCT_PARAMETERS);
  void (*transposed)(MELETE_TRANSPOSED_PARAMETERS);
};

// The tiles are functions of their own: inlined, they lose registers to the loops around them.
#define MELETE_KERNELS(suffix, attribute, width, vectors, rows, transposed_rows)                            \
  struct Set_##suffix {                                                                                     \
    template <int Vectors, int Rows>                                                                        \
    attribute __attribute__((noinline)) static void product_tile(const FrameWindows& w, const float* x,     \
                                                                 const float* packed, const float* bias,    \
                                                                 bool elu, float* y, int64_t columns) {     \
      melete::product_tile<width, Vectors, Rows>(w, x, packed, bias, elu, y, columns);                      \
    }                                                                                                       \
    template <int Vectors, int Rows>                                                                        \
    attribute __attribute__((noinline)) static void transposed_tile(const float* x, int64_t row_step,       \
                                                                    const float* gradient, int64_t count,   \
                                                                    float* result, int64_t columns) {       \
      melete::transposed_tile<width, Vectors, Rows>(x, row_step, gradient, count, result, columns);         \
    }                                                                                                       \
    attribute static void product(MELETE_PRODUCT_PARAMETERS) {                                              \
      product_columns<Set_##suffix, width, vectors, rows>(w, x, packed, bias, elu, y, columns, begin, end); \
    }                                                                                                       \
    attribute static void transposed(MELETE_TRANSPOSED_PARAMETERS) {                                        \
      transposed_columns<Set_##suffix, width, vectors, transposed_rows>(                                    \
          w, x, gradient, gradient_batch_step, result, bias_result, columns, column, first, last);          \
    }                                                                                                       \
  };                                                                                                        \
  constexpr Kernels k_##suffix = {width * vectors, rows, Set_##suffix::product, Set_##suffix::transposed};

MELETE_KERNELS(plain, , 4, 4, 2, 2)
#if defined(__x86_64__)
MELETE_KERNELS(v3, __attribute__((target("arch=x86-64-v3"))), 8, 2, 6, 4)
MELETE_KERNELS(v4, __attribute__((target("arch=x86-64-v4"))), 16, 2, 12, 8)
#endif

const Kernels& kernels() {
  return best_of<Kernels>(k_plain
#if defined(__x86_64__)
                          ,
                          k_v3, k_v4
#endif
  );
}

// Transposition goes by strips of this many rows and runs of this many columns, which stay in the first
// cache.
constexpr int64_t kTransposed = 8, kRun = 64;

// What a product costs, for whoever counts. (`melete bench`)
c10::IValue product_flops(const FrameWindows& w, int64_t columns) {
  return 2.0 * static_cast<double>(w.batch * w.rows) * static_cast<double>(w.taps * w.depth * columns);
}

int64_t panel_of(int64_t columns) {
  return columns % kernels().widest_panel == 0 ? kernels().widest_panel : kFrameColumns;
}

}  // namespace

at::Tensor pack_weight(const at::Tensor& given) {
  const at::Tensor weight = given.contiguous();
  const int64_t out = weight.size(0), in = weight.size(1), kernel = weight.size(2), length = in * kernel;
  const int64_t panel = panel_of(out);
  at::Tensor packed = at::empty({out / panel, length, panel}, weight.options());
  const float* from = weight.data_ptr<float>();
  float* to = packed.data_ptr<float>();
  at::parallel_for(0, out / kTransposed, 16, [&](int64_t first, int64_t last) {
    for (int64_t begin = 0; begin < length; begin += kRun)
      for (int64_t block = first; block < last; ++block) {
        const int64_t row = block * kTransposed;
        const float* source = from + row * length;
        float* target = to + row / panel * panel * length + row % panel;
        for (int64_t at = begin; at < std::min(begin + kRun, length); ++at) {
          float* line = target + (at % kernel * in + at / kernel) * panel;
          for (int64_t i = 0; i < kTransposed; ++i) line[i] = source[i * length + at];
        }
      }
  });
  return packed;
}

at::Tensor pack_weight_for_input(const at::Tensor& given, int64_t stride) {
  const at::Tensor weight = given.contiguous();
  const int64_t out = weight.size(0), in = weight.size(1), kernel = weight.size(2), blocks = kernel / stride;
  const int64_t columns = stride * in, rows = blocks * out, panel = panel_of(columns);
  at::Tensor packed = at::empty({columns / panel, rows, panel}, weight.options());
  const float* from = weight.data_ptr<float>();
  float* to = packed.data_ptr<float>();
  at::parallel_for(0, out, 16, [&](int64_t first, int64_t last) {
    for (int64_t o = first; o < last; ++o)
      for (int64_t block = 0; block < blocks; ++block)
        for (int64_t phase = 0; phase < stride; ++phase) {
          const float* source = from + o * in * kernel + (blocks - 1 - block) * stride + phase;
          const int64_t row = block * out + o;
          for (int64_t i = 0; i < in; ++i) {
            const int64_t column = phase * in + i;
            to[(column / panel * rows + row) * panel + column % panel] = source[i * kernel];
          }
        }
  });
  return packed;
}

void frame_product(const FrameWindows& windows, const float* x, const at::Tensor& packed, const float* bias,
                   Activation activation, at::Tensor& y) {
  const c10::IValue flops = product_flops(windows, y.size(-1));
  RECORD_FUNCTION("melete::product", c10::ArrayRef<const c10::IValue>(flops));
  const int64_t columns = y.size(-1), tile = kernels().tile_rows;
  const float* weights = packed.data_ptr<float>();
  float* out = y.data_ptr<float>();
  // A task is some tiles of one item; rows that do not fill a tile belong to the item's last task.
  const int64_t chunk = tile * std::max<int64_t>(1, 96 / tile);
  const int64_t chunks = std::max<int64_t>(1, windows.rows / chunk);
  at::parallel_for(0, windows.batch * chunks, 1, [&](int64_t first, int64_t last) {
    for (int64_t task = first; task < last; ++task) {
      const int64_t item = task / chunks, part = task % chunks;
      const int64_t end = part + 1 == chunks ? windows.rows : (part + 1) * chunk;
      kernels().product(windows, x + item * windows.batch_step, weights, bias, activation == Activation::elu,
                        out + item * windows.rows * columns, columns, part * chunk, end);
    }
  });
}

std::pair<at::Tensor, at::Tensor> frame_product_weight_gradient(const FrameWindows& windows, const float* x,
                                                                const at::Tensor& given) {
  const at::Tensor gradient = given.contiguous();
  const c10::IValue flops = product_flops(windows, gradient.size(2));
  RECORD_FUNCTION("melete::product", c10::ArrayRef<const c10::IValue>(flops));
  const int64_t columns = gradient.size(2), panel = panel_of(columns);
  const int64_t taps = windows.taps, depth = windows.depth, length = taps * depth;
  const at::Tensor sums = at::zeros({length, columns}, gradient.options());
  const at::Tensor result = at::empty({columns, depth, taps}, gradient.options());
  const at::Tensor bias_result = at::empty({columns}, gradient.options());
  const float* from = gradient.data_ptr<float>();
  float *total = sums.data_ptr<float>(), *bias_out = bias_result.data_ptr<float>();
  // Every element is one sum over time, so results do not depend on how tasks are split: no further than
  // gives all threads the same, since every task copies its panel.
  const int64_t threads = at::get_num_threads();
  const int64_t splits = std::min(taps, threads / std::gcd(columns / panel, threads));
  at::parallel_for(0, columns / panel * splits, 1, [&](int64_t first, int64_t last) {
    for (int64_t task = first; task < last; ++task) {
      const int64_t split = task % splits;
      kernels().transposed(windows, x, from, windows.rows * columns, total, bias_out, columns,
                           task / splits * panel, split * taps / splits, (split + 1) * taps / splits);
    }
  });
  float* to = result.data_ptr<float>();
  at::parallel_for(0, columns / kTransposed, 16, [&](int64_t first, int64_t last) {
    for (int64_t begin = 0; begin < length; begin += kRun)
      for (int64_t block = first; block < last; ++block) {
        const int64_t row = block * kTransposed;
        for (int64_t at = begin; at < std::min(begin + kRun, length); ++at) {
          const float* line = total + (at % taps * depth + at / taps) * columns + row;
          for (int64_t i = 0; i < kTransposed; ++i) to[(row + i) * length + at] = line[i];
        }
      }
  });
  return {result, bias_result};
}

}  // namespace melete

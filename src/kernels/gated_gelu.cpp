#include "kernels/gated_gelu.h"

#include <ATen/Parallel.h>

#include <algorithm>

#include "kernels/vector_math.h"
#include "kernels/vector_targets.h"

namespace melete {

namespace {

using BFloat16 = at::BFloat16;

MELETE_INLINE float read(float x) {
  return x;
}
MELETE_INLINE float read(BFloat16 x) {
  return std::bit_cast<float>(static_cast<uint32_t>(x.x) << 16);
}
MELETE_INLINE void write(float x, float& to) {
  to = x;
}
// Rounded to the nearest, halves to even; what is not a number stays so.
MELETE_INLINE void write(float x, BFloat16& to) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  to.x = static_cast<uint16_t>(x == x ? rounded : 0x7fc0u);
}

template <class T>
MELETE_INLINE void forward_row(const T* __restrict row, T* __restrict y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const float gate = read(row[n + i]);
    write(read(row[i]) * gate * normal_below(gate), y[i]);
  }
}

template <class T>
MELETE_INLINE void backward_row(const T* __restrict gradient, const T* __restrict row, T* __restrict result,
                                int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const float value = read(row[i]), gate = read(row[n + i]), g = read(gradient[i]);
    const float below = normal_below(gate);
    write(g * gate * below, result[i]);
    write(g * value * gelu_slope(gate, below), result[n + i]);
  }
}

MELETE_VECTOR_TARGETS
void forward_rows(const float* x, float* y, int64_t n, int64_t rows) {
  for (int64_t row = 0; row < rows; ++row) forward_row(x + row * 2 * n, y + row * n, n);
}
MELETE_VECTOR_TARGETS
void forward_rows(const BFloat16* x, BFloat16* y, int64_t n, int64_t rows) {
  for (int64_t row = 0; row < rows; ++row) forward_row(x + row * 2 * n, y + row * n, n);
}
MELETE_VECTOR_TARGETS
void backward_rows(const float* g, const float* x, float* y, int64_t n, int64_t rows) {
  for (int64_t row = 0; row < rows; ++row) backward_row(g + row * n, x + row * 2 * n, y + row * 2 * n, n);
}
MELETE_VECTOR_TARGETS
void backward_rows(const BFloat16* g, const BFloat16* x, BFloat16* y, int64_t n, int64_t rows) {
  for (int64_t row = 0; row < rows; ++row) backward_row(g + row * n, x + row * 2 * n, y + row * 2 * n, n);
}

template <class Work>
void over_rows(const at::Tensor& x, Work work) {
  const int64_t n = x.size(-1) / 2, rows = n == 0 ? 0 : x.numel() / (2 * n);
  at::parallel_for(0, rows, std::max<int64_t>(1, (1 << 14) / std::max<int64_t>(n, 1)),
                   [&](int64_t begin, int64_t end) { work(n, begin, end - begin); });
}

}  // namespace

bool has_gated_gelu(const at::Tensor& x) {
  return x.device().is_cpu() && (x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16);
}

at::Tensor gated_gelu_forward(const at::Tensor& x) {
  const at::Tensor input = x.contiguous();
  auto shape = input.sizes().vec();
  shape.back() /= 2;
  const at::Tensor result = at::empty(shape, input.options());
  const auto run = [&]<class T>(const T* from, T* to) {
    over_rows(input, [=](int64_t n, int64_t first, int64_t rows) {
      forward_rows(from + first * 2 * n, to + first * n, n, rows);
    });
  };
  if (input.scalar_type() == at::kFloat)
    run(input.data_ptr<float>(), result.data_ptr<float>());
  else
    run(input.data_ptr<BFloat16>(), result.data_ptr<BFloat16>());
  return result;
}

at::Tensor gated_gelu_backward(const at::Tensor& gradient, const at::Tensor& x) {
  const at::Tensor input = x.contiguous(), g = gradient.contiguous();
  const at::Tensor result = at::empty_like(input);
  const auto run = [&]<class T>(const T* above, const T* from, T* to) {
    over_rows(input, [=](int64_t n, int64_t first, int64_t rows) {
      backward_rows(above + first * n, from + first * 2 * n, to + first * 2 * n, n, rows);
    });
  };
  if (input.scalar_type() == at::kFloat)
    run(g.data_ptr<float>(), input.data_ptr<float>(), result.data_ptr<float>());
  else
    run(g.data_ptr<BFloat16>(), input.data_ptr<BFloat16>(), result.data_ptr<BFloat16>());
  return result;
}

void gated_gelu_row(const float* row, float* y, int64_t n) {
  forward_rows(row, y, n, 1);
}

}  // namespace melete

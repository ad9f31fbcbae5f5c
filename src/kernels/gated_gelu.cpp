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
MELETE_INLINE void forward_row(const T* __restrict values, const T* __restrict gates, T* __restrict y,
                               int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const float gate = read(gates[i]);
    write(read(values[i]) * gate * normal_below(gate), y[i]);
  }
}

template <class T>
MELETE_INLINE void backward_row(const T* __restrict gradient, const T* __restrict values,
                                const T* __restrict gates, T* __restrict to_values, T* __restrict to_gates,
                                int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const float value = read(values[i]), gate = read(gates[i]), g = read(gradient[i]);
    const float below = normal_below(gate);
    write(g * gate * below, to_values[i]);
    write(g * value * gelu_slope(gate, below), to_gates[i]);
  }
}

// Where the halves of a row begin.
struct Halves {
  int64_t value, gate;
};
Halves halves_of(GateOrder order, int64_t n) {
  return order == GateOrder::value_first ? Halves{0, n} : Halves{n, 0};
}

template <class T>
MELETE_INLINE void forward_all(const T* x, T* y, Halves at, int64_t n, int64_t rows) {
  for (int64_t row = 0; row < rows; ++row, x += 2 * n, y += n) forward_row(x + at.value, x + at.gate, y, n);
}
template <class T>
MELETE_INLINE void backward_all(const T* g, const T* x, T* y, Halves at, int64_t n, int64_t rows) {
  for (int64_t row = 0; row < rows; ++row, g += n, x += 2 * n, y += 2 * n)
    backward_row(g, x + at.value, x + at.gate, y + at.value, y + at.gate, n);
}

MELETE_VECTOR_TARGETS
void forward_rows(const float* x, float* y, Halves at, int64_t n, int64_t rows) {
  forward_all(x, y, at, n, rows);
}
MELETE_VECTOR_TARGETS
void forward_rows(const BFloat16* x, BFloat16* y, Halves at, int64_t n, int64_t rows) {
  forward_all(x, y, at, n, rows);
}
MELETE_VECTOR_TARGETS
void backward_rows(const float* g, const float* x, float* y, Halves at, int64_t n, int64_t rows) {
  backward_all(g, x, y, at, n, rows);
}
MELETE_VECTOR_TARGETS
void backward_rows(const BFloat16* g, const BFloat16* x, BFloat16* y, Halves at, int64_t n, int64_t rows) {
  backward_all(g, x, y, at, n, rows);
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

at::Tensor gated_gelu_forward(const at::Tensor& x, GateOrder order) {
  const at::Tensor input = x.contiguous();
  auto shape = input.sizes().vec();
  shape.back() /= 2;
  const at::Tensor result = at::empty(shape, input.options());
  const auto run = [&]<class T>(const T* from, T* to) {
    over_rows(input, [=](int64_t n, int64_t first, int64_t rows) {
      forward_rows(from + first * 2 * n, to + first * n, halves_of(order, n), n, rows);
    });
  };
  if (input.scalar_type() == at::kFloat)
    run(input.data_ptr<float>(), result.data_ptr<float>());
  else
    run(input.data_ptr<BFloat16>(), result.data_ptr<BFloat16>());
  return result;
}

at::Tensor gated_gelu_backward(const at::Tensor& gradient, const at::Tensor& x, GateOrder order) {
  const at::Tensor input = x.contiguous(), g = gradient.contiguous();
  const at::Tensor result = at::empty_like(input);
  const auto run = [&]<class T>(const T* above, const T* from, T* to) {
    over_rows(input, [=](int64_t n, int64_t first, int64_t rows) {
      backward_rows(above + first * n, from + first * 2 * n, to + first * 2 * n, halves_of(order, n), n,
                    rows);
    });
  };
  if (input.scalar_type() == at::kFloat)
    run(g.data_ptr<float>(), input.data_ptr<float>(), result.data_ptr<float>());
  else
    run(g.data_ptr<BFloat16>(), input.data_ptr<BFloat16>(), result.data_ptr<BFloat16>());
  return result;
}

void gated_gelu_row(const float* row, float* y, int64_t n, GateOrder order) {
  forward_rows(row, y, halves_of(order, n), n, 1);
}

}  // namespace melete

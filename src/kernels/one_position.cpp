#include "kernels/one_position.h"

#include <cmath>

#include "kernels/lanes.h"
#include "kernels/softmax_rows.h"
#include "kernels/vector_math.h"
#include "kernels/vector_targets.h"

namespace melete {

namespace {

constexpr float kNormEpsilon = 1e-5f;

// result [Vectors * kLanes] = sum over keys of weights * values; vectors side by side, because an addition
// has to wait for the one before it
template <int Vectors>
MELETE_INLINE void mix_lanes(const float* weights, const float* values, int64_t step, int64_t keys,
                             float* result) {
  LaneVector sums[Vectors] = {}, value;
  for (int64_t key = 0; key < keys; ++key)
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) {
      load<kLanes>(value, values + key * step + v * kLanes);
      sums[v] += value * weights[key];
    }
#pragma GCC unroll 4
  for (int v = 0; v < Vectors; ++v) store<kLanes>(sums[v], result + v * kLanes);
}

// result [dim] = sum over keys of weights * values
MELETE_INLINE void mix(const float* weights, const float* values, int64_t step, int64_t keys, int64_t dim,
                       float* result) {
  int64_t d = 0;
  for (; d + 4 * kLanes <= dim; d += 4 * kLanes) mix_lanes<4>(weights, values + d, step, keys, result + d);
  for (; d + kLanes <= dim; d += kLanes) mix_lanes<1>(weights, values + d, step, keys, result + d);
  for (; d < dim; ++d) {
    float sum = 0;
    for (int64_t key = 0; key < keys; ++key) sum += weights[key] * values[key * step + d];
    result[d] = sum;
  }
}

}  // namespace

MELETE_VECTOR_TARGETS
void norm_row(const float* x, const float* gain, const float* shift, float* y, int64_t n) {
  const float count = static_cast<float>(n);
  const float mean = sum_over(n, [&](int64_t i) { return x[i]; }) / count;
  const float spread = sum_over(n, [&](int64_t i) { return (x[i] - mean) * (x[i] - mean); }) / count;
  const float inverse = 1 / std::sqrt(spread + kNormEpsilon);
  if (shift)
    for (int64_t i = 0; i < n; ++i) y[i] = (x[i] - mean) * inverse * gain[i] + shift[i];
  else
    for (int64_t i = 0; i < n; ++i) y[i] = (x[i] - mean) * inverse * gain[i];
}

MELETE_VECTOR_TARGETS
void attend_position(const PositionAttention& a, float* scores, float* result) {
  for (int64_t key = 0; key < a.keys; ++key)
    for (int64_t first = 0; first < a.heads; first += a.kv_heads)
      for (int64_t kv = 0; kv < a.kv_heads; ++kv) {
        const float *q = a.query + (first + kv) * a.dim, *k = a.first_key + key * a.step + kv * a.dim;
        scores[(first + kv) * a.keys + key] =
            a.scale * sum_over(a.dim, [&](int64_t i) { return q[i] * k[i]; });
      }
  for (int64_t head = 0; head < a.heads; ++head) {
    float* row = scores + head * a.keys;
    if (a.bias) {
      const float* bias = a.bias + head * a.bias_step;
      for (int64_t key = a.bias_from; key < a.keys; ++key) row[key] += bias[key - a.bias_from];
    }
    if (a.hidden)
      for (int64_t key = 0; key < a.keys; ++key) row[key] = a.hidden[key] ? kUnseen : row[key];
    softmax_in_place(row, a.keys);
    mix(row, a.first_value + head % a.kv_heads * a.dim, a.step, a.keys, a.dim, result + head * a.dim);
  }
}

}  // namespace melete

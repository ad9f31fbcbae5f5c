#include "kernels/one_position.h"

#include <cmath>

#include "kernels/lanes.h"
#include "kernels/softmax_rows.h"
#include "kernels/vector_math.h"
#include "kernels/vector_targets.h"

namespace melete {

namespace {

constexpr float kNormEpsilon = 1e-5f;

// result [dim] = sum over keys of weights * values
MELETE_INLINE void mix(const float* __restrict weights, const float* __restrict values, int64_t step,
                       int64_t keys, int64_t dim, float* __restrict result) {
  int64_t d = 0;
  for (; d + kLanes <= dim; d += kLanes) {
    float lanes[kLanes] = {};
    for (int64_t key = 0; key < keys; ++key)
      for (int64_t lane = 0; lane < kLanes; ++lane)
        lanes[lane] += weights[key] * values[key * step + d + lane];
    for (int64_t lane = 0; lane < kLanes; ++lane) result[d + lane] = lanes[lane];
  }
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
  const int64_t step = 2 * a.dim;
  for (int64_t key = 0; key < a.keys; ++key)
    for (int64_t head = 0; head < a.heads; ++head) {
      const float *q = a.query + head * a.dim, *k = a.pairs + key * step;
      scores[head * a.keys + key] = a.scale * sum_over(a.dim, [&](int64_t i) { return q[i] * k[i]; });
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
    mix(row, a.pairs + a.dim, step, a.keys, a.dim, result + head * a.dim);
  }
}

}  // namespace melete

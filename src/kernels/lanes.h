// Sums over a row, kept in lanes and added up in one fixed order, and softmax by them.
#pragma once

#include <cstdint>

#include "kernels/vector_math.h"

namespace melete {

constexpr int64_t kLanes = 16;

MELETE_INLINE float sum_of(const float* lanes) {
  float eight[8], four[4];
  for (int i = 0; i < 8; ++i) eight[i] = lanes[i] + lanes[i + 8];
  for (int i = 0; i < 4; ++i) four[i] = eight[i] + eight[i + 4];
  return (four[0] + four[2]) + (four[1] + four[3]);
}

// Sum of f(i) for i < n, in lanes.
template <class F>
MELETE_INLINE float sum_over(int64_t n, F f) {
  float lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += f(i + lane);
  float sum = sum_of(lanes);
  for (; i < n; ++i) sum += f(i);
  return sum;
}

MELETE_INLINE float highest_of(const float* x, int64_t n) {
  float lanes[kLanes];
  for (int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] = x[0];
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int64_t lane = 0; lane < kLanes; ++lane)
      lanes[lane] = x[i + lane] > lanes[lane] ? x[i + lane] : lanes[lane];
  float highest = x[0];
  for (int64_t lane = 0; lane < kLanes; ++lane) highest = lanes[lane] > highest ? lanes[lane] : highest;
  for (; i < n; ++i) highest = x[i] > highest ? x[i] : highest;
  return highest;
}

MELETE_INLINE void softmax_in_place(float* x, int64_t n) {
  const float highest = highest_of(x, n);
  for (int64_t i = 0; i < n; ++i) x[i] = exp_of(x[i] - highest);
  const float inverse = 1 / sum_over(n, [&](int64_t i) { return x[i]; });
  for (int64_t i = 0; i < n; ++i) x[i] *= inverse;
}

}  // namespace melete

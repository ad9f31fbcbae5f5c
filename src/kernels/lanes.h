// Sums over a row, kept in lanes and added up in one fixed order, and softmax by them.
#pragma once

#include <cstdint>

#include "kernels/vector_math.h"
#include "kernels/vectors.h"

namespace melete {

constexpr int64_t kLanes = 16;

using LaneVector = Lanes<kLanes>::Vector;

// By halves: what a compiler makes of a loop over lanes is a long chain of single additions.
MELETE_INLINE float sum_of(const LaneVector& x) {
  const Lanes<8>::Vector eight = __builtin_shufflevector(x, x, 0, 1, 2, 3, 4, 5, 6, 7) +
                                 __builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15);
  const Lanes<4>::Vector four =
      __builtin_shufflevector(eight, eight, 0, 1, 2, 3) + __builtin_shufflevector(eight, eight, 4, 5, 6, 7);
  return (four[0] + four[2]) + (four[1] + four[3]);
}

// Sum of f(i) for i < n, in lanes.
template <class F>
MELETE_INLINE float sum_over(int64_t n, F f) {
  float lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += f(i + lane);
  LaneVector sums;
  load<kLanes>(sums, lanes);
  float sum = sum_of(sums);
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

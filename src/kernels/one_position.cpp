#include "kernels/one_position.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>

#include "kernels/lanes.h"
#include "kernels/softmax_rows.h"
#include "kernels/vector_math.h"
#include "kernels/vector_targets.h"

namespace melete {

namespace {

constexpr float kNormEpsilon = 1e-5f;

constexpr int64_t kScoredKeys = 4;           // that a query is multiplied with at once
constexpr int64_t kMixedKeys = 8;            // whose values are added to a result at once
constexpr int64_t kProductsWorth = 1 << 20;  // a thread that has to be woken

MELETE_INLINE int64_t place(const PositionAttention& a, int64_t key) {
  return key * a.step + (a.rows ? a.rows[key] * a.row_step : 0);
}

// The sums over four vectors' lanes, each as sum_of adds them up.
MELETE_INLINE Lanes<4>::Vector sums_of(const LaneVector (&x)[4]) {
  using Four = Lanes<4>::Vector;
  Four four[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const Lanes<8>::Vector eight = __builtin_shufflevector(x[i], x[i], 0, 1, 2, 3, 4, 5, 6, 7) +
                                   __builtin_shufflevector(x[i], x[i], 8, 9, 10, 11, 12, 13, 14, 15);
    four[i] =
        __builtin_shufflevector(eight, eight, 0, 1, 2, 3) + __builtin_shufflevector(eight, eight, 4, 5, 6, 7);
  }
  const Four two = __builtin_shufflevector(four[0], four[1], 0, 1, 4, 5) +
                   __builtin_shufflevector(four[0], four[1], 2, 3, 6, 7);
  const Four more = __builtin_shufflevector(four[2], four[3], 0, 1, 4, 5) +
                    __builtin_shufflevector(four[2], four[3], 2, 3, 6, 7);
  return __builtin_shufflevector(two, more, 0, 2, 4, 6) + __builtin_shufflevector(two, more, 1, 3, 5, 7);
}

// Sums side by side, because an addition has to wait for the one before it; always in the same order.
MELETE_INLINE float dot(const float* one, const float* other, int64_t n) {
  LaneVector sums[4] = {}, x, y;
  int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes)
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) {
      load<kLanes>(x, one + i + v * kLanes);
      load<kLanes>(y, other + i + v * kLanes);
      sums[v] += x * y;
    }
  for (; i + kLanes <= n; i += kLanes) {
    load<kLanes>(x, one + i);
    load<kLanes>(y, other + i);
    sums[0] += x * y;
  }
  float sum = sum_of((sums[0] + sums[1]) + (sums[2] + sums[3]));
  for (; i < n; ++i) sum += one[i] * other[i];
  return sum;
}

// One query with four keys, each in two sums because an addition has to wait for the one before it.
MELETE_INLINE void dots(const float* query, const float* const (&keys)[kScoredKeys], int64_t offset,
                        int64_t dim, float scale, float* scores) {
  LaneVector even[kScoredKeys] = {}, odd[kScoredKeys] = {}, x, y;
  int64_t i = 0;
  for (; i + 2 * kLanes <= dim; i += 2 * kLanes) {
    load<kLanes>(x, query + i);
#pragma GCC unroll 4
    for (int key = 0; key < kScoredKeys; ++key) {
      load<kLanes>(y, keys[key] + offset + i);
      even[key] += x * y;
    }
    load<kLanes>(x, query + i + kLanes);
#pragma GCC unroll 4
    for (int key = 0; key < kScoredKeys; ++key) {
      load<kLanes>(y, keys[key] + offset + i + kLanes);
      odd[key] += x * y;
    }
  }
#pragma GCC unroll 4
  for (int key = 0; key < kScoredKeys; ++key) even[key] += odd[key];
  Lanes<4>::Vector sums = sums_of(even);
  for (; i < dim; ++i)
    for (int key = 0; key < kScoredKeys; ++key) sums[key] += query[i] * keys[key][offset + i];
  store<4>(sums * scale, scores);
}

// What is read next lies in another page, where the machine does not look ahead by itself.
MELETE_INLINE void prefetch_row(const float* from, int64_t n) {
  for (int64_t i = 0; i < n; i += kLanes) __builtin_prefetch(from + i);
}

// result [dim] += sum over `Keys` keys of weights * values
template <int Keys>
MELETE_INLINE void mix(const float* weights, const float* const (&values)[kMixedKeys], int64_t offset,
                       int64_t dim, float* result) {
  LaneVector sum, value, spread[Keys];
#pragma GCC unroll 8
  for (int key = 0; key < Keys; ++key) spread[key] = LaneVector{} + weights[key];
  int64_t d = 0;
  for (; d + kLanes <= dim; d += kLanes) {
    load<kLanes>(sum, result + d);
#pragma GCC unroll 8
    for (int key = 0; key < Keys; ++key) {
      load<kLanes>(value, values[key] + offset + d);
      sum += value * spread[key];
    }
    store<kLanes>(sum, result + d);
  }
  for (; d < dim; ++d)
    for (int key = 0; key < Keys; ++key) result[d] += weights[key] * values[key][offset + d];
}

// Key heads; of all queries, the heads that read them. Keys are gone through once for all of these, because a
// position's heads lie side by side.
struct HeadRange {
  int64_t begin, end;
};

template <int Keys>
MELETE_INLINE void score_keys(const PositionAttention& a, const HeadRange& range, int64_t key,
                              float* scores) {
  const float* keys[kScoredKeys];
  for (int i = 0; i < Keys; ++i) keys[i] = a.first_key + place(a, key + i);
  for (int64_t first = 0; first < a.queries * a.heads; first += a.kv_heads)
    for (int64_t kv = range.begin; kv < range.end; ++kv) {
      const float* const query = a.query + (first + kv) * a.dim;
      float* const made = scores + (first + kv) * a.keys + key;
      if constexpr (Keys == kScoredKeys)
        dots(query, keys, kv * a.dim, a.dim, a.scale, made);
      else
        *made = a.scale * dot(query, keys[0] + kv * a.dim, a.dim);
    }
}

// Scores of one head become weights.
MELETE_INLINE void weigh(const PositionAttention& a, int64_t head, float* scores) {
  if (a.bias) {
    const float* bias = a.bias + head * a.bias_step;
    for (int64_t key = a.bias_from; key < a.keys; ++key) scores[key] += bias[key - a.bias_from];
  }
  if (a.hidden)
    for (int64_t key = 0; key < a.keys; ++key) scores[key] = a.hidden[key] ? kUnseen : scores[key];
  softmax_in_place(scores, a.keys);
}

template <int Keys>
MELETE_INLINE void mix_keys(const PositionAttention& a, const HeadRange& range, int64_t key,
                            const float* weights, float* result) {
  const float* values[kMixedKeys];
  for (int i = 0; i < Keys; ++i) values[i] = a.first_value + place(a, key + i);
  for (int64_t first = 0; first < a.queries * a.heads; first += a.kv_heads)
    for (int64_t kv = range.begin; kv < range.end; ++kv)
      mix<Keys>(weights + (first + kv) * a.keys + key, values, kv * a.dim, a.dim,
                result + (first + kv) * a.dim);
}

MELETE_VECTOR_TARGETS
void attend_heads(const PositionAttention& a, float* scores, float* result, const HeadRange& range) {
  const int64_t offset = range.begin * a.dim, width = (range.end - range.begin) * a.dim;
  int64_t key = 0;
  for (; key + kScoredKeys <= a.keys; key += kScoredKeys) {
    for (int64_t next = key + kScoredKeys; next < std::min(a.keys, key + 2 * kScoredKeys); ++next)
      prefetch_row(a.first_key + place(a, next) + offset, width);
    score_keys<kScoredKeys>(a, range, key, scores);
  }
  for (; key < a.keys; ++key) score_keys<1>(a, range, key, scores);
  for (int64_t first = 0; first < a.queries * a.heads; first += a.kv_heads)
    for (int64_t row = first + range.begin; row < first + range.end; ++row) {
      weigh(a, row % a.heads, scores + row * a.keys);
      for (int64_t d = 0; d < a.dim; ++d) result[row * a.dim + d] = 0;
    }
  key = 0;
  for (; key + kMixedKeys <= a.keys; key += kMixedKeys) {
    for (int64_t next = key + kMixedKeys; next < std::min(a.keys, key + 2 * kMixedKeys); ++next)
      prefetch_row(a.first_value + place(a, next) + offset, width);
    mix_keys<kMixedKeys>(a, range, key, scores, result);
  }
  for (; key < a.keys; ++key) mix_keys<1>(a, range, key, scores, result);
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

void attend_position(const PositionAttention& a, float* scores, float* result) {
  const int64_t products = 2 * a.queries * a.keys * a.dim * (a.heads / a.kv_heads);  // of a key head
  at::parallel_for(0, a.kv_heads, std::max<int64_t>(1, kProductsWorth / products),
                   [&](int64_t begin, int64_t end) {
                     attend_heads(a, scores, result, {begin, end});
                   });
}

}  // namespace melete

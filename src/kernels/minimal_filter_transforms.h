// One-dimensional transforms of minimal filtering (Winograd; Toom and Cook): `Points` multiplications give
// m outputs of a filter of r taps, where m + r - 1 = Points. The points are 0, +-a, +-b and infinity, as many
// of them as needed: pairs of opposite points share most of their sums.
//   outputs = Output(Filter(taps) * Input(values))
//   taps' gradient = FilterGradient(Input(values) * OutputGradient(outputs' gradient))
// Every struct maps `in` vectors to `out` vectors; V is a vector of floats.
#pragma once

#include <array>

#include "kernels/vector_targets.h"

namespace melete::minimal_filter {

// Close to 1 on both sides: the powers of the points, and with them rounding errors, stay small.
constexpr float kA = 0.75f, kB = 1.5f;

constexpr int pairs(int points) {
  return (points - 1) / 2;
}
constexpr bool has_infinity(int points) {
  return points % 2 == 0;
}

constexpr double power(double x, int exponent) {
  return exponent == 0 ? 1 : x * power(x, exponent - 1);
}

// Value of the filter's transform at a point, as factors of its taps.
template <int Points, int Taps>
constexpr std::array<std::array<float, Taps>, Points> filter_matrix() {
  std::array<std::array<float, Taps>, Points> matrix{};
  constexpr double a = kA, b = kB;
  constexpr std::array<double, 5> at{0, a, -a, b, -b};
  constexpr int finite = 2 * pairs(Points) + 1;
  for (int i = 0; i < finite; ++i) {
    double scale = 1;
    for (int k = 0; k < finite; ++k)
      if (k != i) scale *= at[i] - at[k];
    for (int tap = 0; tap < Taps; ++tap) matrix[i][tap] = static_cast<float>(power(at[i], tap) / scale);
  }
  if constexpr (has_infinity(Points)) matrix[Points - 1][Taps - 1] = 1;
  return matrix;
}

template <int Points, int Taps>
struct Filter {
  static constexpr int in = Taps, out = Points;
  template <class V>
  static MELETE_INLINE void apply(const V* x, V* y) {
    constexpr auto matrix = filter_matrix<Points, Taps>();
#pragma GCC unroll 8
    for (int i = 0; i < out; ++i) {
      y[i] = x[0] * matrix[i][0];
#pragma GCC unroll 8
      for (int tap = 1; tap < Taps; ++tap) y[i] += x[tap] * matrix[i][tap];
    }
  }
};

template <int Points, int Taps>
struct FilterGradient {
  static constexpr int in = Points, out = Taps;
  template <class V>
  static MELETE_INLINE void apply(const V* x, V* y) {
    constexpr auto matrix = filter_matrix<Points, Taps>();
#pragma GCC unroll 8
    for (int tap = 0; tap < Taps; ++tap) {
      y[tap] = x[0] * matrix[0][tap];
#pragma GCC unroll 8
      for (int i = 1; i < Points; ++i) y[tap] += x[i] * matrix[i][tap];
    }
  }
};

template <int Points>
struct Input {
  static constexpr int in = Points, out = Points;
  template <class V>
  static MELETE_INLINE void apply(const V* x, V* y) {
    constexpr float a2 = kA * kA, b2 = kB * kB;
    if constexpr (pairs(Points) == 1) {
      y[0] = x[2] - x[0] * a2;
      y[1] = x[2] + x[1] * kA;
      y[2] = x[2] - x[1] * kA;
      if constexpr (has_infinity(Points)) y[3] = x[3] - x[1] * a2;
    } else {
      y[0] = x[4] - x[2] * (a2 + b2) + x[0] * (a2 * b2);
      V even = x[4] - x[2] * b2, odd = x[3] - x[1] * b2;
      y[1] = even + odd * kA;
      y[2] = even - odd * kA;
      even = x[4] - x[2] * a2;
      odd = x[3] - x[1] * a2;
      y[3] = even + odd * kB;
      y[4] = even - odd * kB;
      if constexpr (has_infinity(Points)) y[5] = x[5] - x[3] * (a2 + b2) + x[1] * (a2 * b2);
    }
  }
};

template <int Points, int Outputs>
struct Output {
  static constexpr int in = Points, out = Outputs;
  template <class V>
  static MELETE_INLINE void apply(const V* x, V* y) {
    const V sum_a = x[1] + x[2], difference_a = x[1] - x[2];
    if constexpr (pairs(Points) == 1) {
      y[0] = x[0] + sum_a;
#pragma GCC unroll 8
      for (int k = 1; k < Outputs; ++k)
        y[k] = (k % 2 ? difference_a : sum_a) * static_cast<float>(power(kA, k));
    } else {
      const V sum_b = x[3] + x[4], difference_b = x[3] - x[4];
      y[0] = x[0] + sum_a + sum_b;
#pragma GCC unroll 8
      for (int k = 1; k < Outputs; ++k)
        y[k] = (k % 2 ? difference_a : sum_a) * static_cast<float>(power(kA, k)) +
               (k % 2 ? difference_b : sum_b) * static_cast<float>(power(kB, k));
    }
    if constexpr (has_infinity(Points)) y[Outputs - 1] += x[Points - 1];
  }
};

// The transpose of Output.
template <int Points, int Outputs>
struct OutputGradient {
  static constexpr int in = Outputs, out = Points;
  template <class V>
  static MELETE_INLINE void apply(const V* x, V* y) {
    y[0] = x[0];
    for (int pair = 0; pair < pairs(Points); ++pair) {
      const double p = pair == 0 ? kA : kB;
      V even = x[0], odd = x[1];
      if constexpr (Outputs > 2) even += x[2] * static_cast<float>(p * p);
      if constexpr (Outputs > 3) odd += x[3] * static_cast<float>(p * p);
      if constexpr (Outputs > 4) even += x[4] * static_cast<float>(p * p * p * p);
      y[1 + 2 * pair] = even + odd * static_cast<float>(p);
      y[2 + 2 * pair] = even - odd * static_cast<float>(p);
    }
    if constexpr (has_infinity(Points)) y[Points - 1] = x[Outputs - 1];
  }
};

}  // namespace melete::minimal_filter

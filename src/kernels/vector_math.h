// Functions of one float as plain arithmetic without branches, so that loops over them become vector
// instructions. What is not a number stays so.
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/vector_targets.h"

namespace melete {

// Relative error below 2e-7; 0 below -87, where float32 has no more normal numbers, and inf above 88.
MELETE_INLINE float exp_of(float x) {
  constexpr float kRound = 12582912.f;  // 1.5 * 2^23: adding it leaves an integer in the low bits
  const float a = x < -87.f ? -87.f : x > 88.f ? 88.f : x;
  const float n = (a * 1.44269504f + kRound) - kRound;
  const float r = (a - n * 0.693359375f) + n * 2.12194440e-4f;  // in [-ln 2 / 2, ln 2 / 2]
  float p = r * 1.9875691500e-4f + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  const float scale = std::bit_cast<float>((static_cast<int32_t>(n) + 127) << 23);
  const float result = (p * r * r + r + 1.f) * scale;  // no part of it is a denormal, which would be lost
  const float bounded = x < -87.f ? 0.f : x > 88.f ? std::bit_cast<float>(0x7f800000) : result;
  return x == x ? bounded : x;
}

// Relative error below 5e-7: a ratio of polynomials in x^2 on [-4, 4], where erf has become 1.
MELETE_INLINE float erf_of(float x) {
  const float a = x < -4.f ? -4.f : x > 4.f ? 4.f : x;
  const float s = a * a;
  float p = s * -2.72614225801306e-10f + 2.77068142495902e-08f;
  p = p * s - 2.10102402082508e-06f;
  p = p * s - 5.69250639462346e-05f;
  p = p * s - 7.34990630326855e-04f;
  p = p * s - 2.95459980854025e-03f;
  p = p * s - 1.60960333262415e-02f;
  float q = s * -1.45660718464996e-05f - 2.13374055278905e-04f;
  q = q * s - 1.68282697438203e-03f;
  q = q * s - 7.37332916720468e-03f;
  q = q * s - 1.42647390514189e-02f;
  const float result = a * p / q;
  return x == x ? result : x;
}

constexpr float kSqrtHalf = 0.70710678118654752f;
constexpr float kInverseSqrtTwoPi = 0.39894228040143268f;

// The share of a standard normal below x: gelu(x) = x * normal_below(x).
MELETE_INLINE float normal_below(float x) {
  return 0.5f + 0.5f * erf_of(x * kSqrtHalf);
}
// The derivative of x * normal_below(x), given normal_below(x).
MELETE_INLINE float gelu_slope(float x, float below) {
  return below + x * kInverseSqrtTwoPi * exp_of(-0.5f * x * x);
}

}  // namespace melete

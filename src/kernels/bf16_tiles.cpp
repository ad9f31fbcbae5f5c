#include "kernels/bf16_tiles.h"

#include <algorithm>

#include "kernels/vector_level.h"

#if defined(__x86_64__)
#include <immintrin.h>
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // g++ 12 takes offence at its own header
#endif

namespace melete {

#if defined(__x86_64__)

namespace {

#define MELETE_BF16_CODE __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")))

constexpr int64_t kDepth = 2 * kBf16Lanes;  // values of a lane that fill a vector of pairs

MELETE_BF16_CODE inline __mmask16 first(int64_t count) {
  return static_cast<__mmask16>((1u << std::clamp<int64_t>(count, 0, kBf16Lanes)) - 1);
}

// The 16 values of `low`, then those of `high`, rounded to the nearest (ties to even).
MELETE_BF16_CODE inline __m512i rounded(__m512 low, __m512 high) {
  return (__m512i)_mm512_cvtne2ps_pbh(high, low);
}

// 16 rows of 16 words -> their columns.
MELETE_BF16_CODE inline void transpose(__m512i (&x)[kBf16Lanes]) {
  __m512i pairs[16], fours[16];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    pairs[2 * i] = _mm512_unpacklo_epi32(x[2 * i], x[2 * i + 1]);
    pairs[2 * i + 1] = _mm512_unpackhi_epi32(x[2 * i], x[2 * i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    fours[i] = _mm512_unpacklo_epi64(pairs[i], pairs[i + 2]);
    fours[i + 1] = _mm512_unpackhi_epi64(pairs[i], pairs[i + 2]);
    fours[i + 2] = _mm512_unpacklo_epi64(pairs[i + 1], pairs[i + 3]);
    fours[i + 3] = _mm512_unpackhi_epi64(pairs[i + 1], pairs[i + 3]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {  // column 4 * quarter + i is in that quarter of fours[i], [4 + i], ...
    const __m512i even_low = _mm512_shuffle_i32x4(fours[i], fours[4 + i], 0x88);
    const __m512i even_high = _mm512_shuffle_i32x4(fours[8 + i], fours[12 + i], 0x88);
    const __m512i odd_low = _mm512_shuffle_i32x4(fours[i], fours[4 + i], 0xdd);
    const __m512i odd_high = _mm512_shuffle_i32x4(fours[8 + i], fours[12 + i], 0xdd);
    x[i] = _mm512_shuffle_i32x4(even_low, even_high, 0x88);
    x[4 + i] = _mm512_shuffle_i32x4(odd_low, odd_high, 0x88);
    x[8 + i] = _mm512_shuffle_i32x4(even_low, even_high, 0xdd);
    x[12 + i] = _mm512_shuffle_i32x4(odd_low, odd_high, 0xdd);
  }
}

MELETE_BF16_CODE void to_words(const float* from, int64_t depth, uint32_t* to) {
  for (int64_t d = 0; d < depth; d += kDepth, to += kBf16Lanes) {
    const __m512i words =
        rounded(_mm512_maskz_loadu_ps(first(depth - d), from + d),
                _mm512_maskz_loadu_ps(first(depth - d - kBf16Lanes), from + d + kBf16Lanes));
    _mm512_mask_storeu_epi32(to, first((depth - d + 1) / 2), words);
  }
}

MELETE_BF16_CODE void pack_along(const float* from, int64_t step, int64_t lanes, int64_t depth, uint32_t* to,
                                 int64_t width, int64_t to_step) {
  const __mmask16 stored = first(width);
  for (int64_t d = 0; d < depth; d += kDepth, to += kBf16Lanes * to_step) {
    const __mmask16 low = first(depth - d), high = first(depth - d - kBf16Lanes);
    __m512i words[kBf16Lanes];
#pragma GCC unroll 16
    for (int lane = 0; lane < kBf16Lanes; ++lane) {
      const float* values = from + lane * step + d;
      words[lane] = lane < lanes ? rounded(_mm512_maskz_loadu_ps(low, values),
                                           _mm512_maskz_loadu_ps(high, values + kBf16Lanes))
                                 : _mm512_setzero_si512();
    }
    transpose(words);
    const int64_t pairs = std::min<int64_t>(kBf16Lanes, (depth - d + 1) / 2);
    for (int64_t p = 0; p < pairs; ++p) _mm512_mask_storeu_epi32(to + p * to_step, stored, words[p]);
  }
}

MELETE_BF16_CODE void pack_across(const float* from, int64_t step, int64_t lanes, int64_t depth, uint32_t* to,
                                  int64_t width, int64_t to_step) {
  // Values i and 16 + i side by side.
  alignas(64) uint16_t order[2 * kBf16Lanes];
  for (int i = 0; i < kBf16Lanes; ++i) {
    order[2 * i] = static_cast<uint16_t>(i);
    order[2 * i + 1] = static_cast<uint16_t>(kBf16Lanes + i);
  }
  const __m512i interleaved = _mm512_load_si512(order);
  const __mmask16 stored = first(width), loaded = first(lanes);
  for (int64_t d = 0; d < depth; d += 2, from += 2 * step, to += to_step) {
    const __m512 low = _mm512_maskz_loadu_ps(loaded, from);
    const __m512 high = d + 1 < depth ? _mm512_maskz_loadu_ps(loaded, from + step) : _mm512_setzero_ps();
    _mm512_mask_storeu_epi32(to, stored, _mm512_permutexvar_epi16(interleaved, rounded(low, high)));
  }
}

MELETE_BF16_CODE void tile(const uint32_t* a, int64_t row_step, int64_t pair_step, const uint32_t* b,
                           int64_t pairs, const float* start, int64_t start_step, float* c, int64_t c_step,
                           int64_t rows, int64_t columns) {
  const __mmask16 left = first(columns), right = first(columns - kBf16Lanes);
  __m512 sums[kBf16Rows][2];
#pragma GCC unroll 12
  for (int r = 0; r < kBf16Rows; ++r) {
    sums[r][0] = sums[r][1] = _mm512_setzero_ps();
    if (start && r < rows) {
      sums[r][0] = _mm512_maskz_loadu_ps(left, start + r * start_step);
      sums[r][1] = _mm512_maskz_loadu_ps(right, start + r * start_step + kBf16Lanes);
    }
  }
  // Three rows to a pointer: twelve pointers would not fit the registers.
  const uint32_t* of_rows[kBf16Rows / 3];
  for (int i = 0; i < kBf16Rows / 3; ++i) of_rows[i] = a + 3 * i * row_step;
  for (int64_t p = 0; p < pairs; ++p, b += kBf16Columns) {
    const __m512bh b0 = (__m512bh)_mm512_loadu_si512(b), b1 = (__m512bh)_mm512_loadu_si512(b + kBf16Lanes);
#pragma GCC unroll 12
    for (int r = 0; r < kBf16Rows; ++r) {
      const uint32_t word = of_rows[r / 3][p * pair_step + r % 3 * row_step];
      const __m512bh pair = (__m512bh)_mm512_set1_epi32(static_cast<int>(word));
      sums[r][0] = _mm512_dpbf16_ps(sums[r][0], pair, b0);
      sums[r][1] = _mm512_dpbf16_ps(sums[r][1], pair, b1);
    }
  }
#pragma GCC unroll 12
  for (int r = 0; r < kBf16Rows; ++r)
    if (r < rows) {
      _mm512_mask_storeu_ps(c + r * c_step, left, sums[r][0]);
      _mm512_mask_storeu_ps(c + r * c_step + kBf16Lanes, right, sums[r][1]);
    }
}

}  // namespace

const Bf16Tiles* bf16_tiles() {
  static const Bf16Tiles tiles{to_words, pack_along, pack_across, tile};
  static const bool there = vector_level() == VectorLevel::v4 && __builtin_cpu_supports("avx512bf16");
  return there ? &tiles : nullptr;
}

#else

const Bf16Tiles* bf16_tiles() {
  return nullptr;
}

#endif

}  // namespace melete

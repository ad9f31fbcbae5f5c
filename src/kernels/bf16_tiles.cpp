#include "kernels/bf16_tiles.h"

#include <algorithm>

#include "kernels/amx_tiles.h"
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

// Values i and 16 + i side by side: 16 pairs out of two rows.
MELETE_BF16_CODE inline __m512i side_by_side(__m512 low, __m512 high) {
  const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7,
                                         22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  return _mm512_permutexvar_epi16(order, rounded(low, high));
}

// 32 values of depth from `from` on, of which `depth` are there, as the words of one lane.
MELETE_BF16_CODE inline __m512i words_along(const float* from, int64_t depth) {
  return rounded(_mm512_maskz_loadu_ps(first(depth), from),
                 _mm512_maskz_loadu_ps(first(depth - kBf16Lanes), from + kBf16Lanes));
}

// Two values of depth, of which `depth` are there, of up to 16 lanes that lie side by side.
MELETE_BF16_CODE inline __m512i words_across(const float* from, int64_t step, __mmask16 lanes,
                                             int64_t depth) {
  return side_by_side(depth > 0 ? _mm512_maskz_loadu_ps(lanes, from) : _mm512_setzero_ps(),
                      depth > 1 ? _mm512_maskz_loadu_ps(lanes, from + step) : _mm512_setzero_ps());
}

MELETE_BF16_CODE void rows_along(const float* from, int64_t step, int64_t rows, int64_t depth, uint32_t* to,
                                 int64_t to_step) {
  for (int64_t row = 0; row < rows; ++row, from += step, to += to_step)
    for (int64_t d = 0; d < depth; d += kDepth)
      _mm512_storeu_si512(to + d / 2, words_along(from + d, depth - d));
}

MELETE_BF16_CODE void rows_across(const float* from, int64_t step, int64_t rows, int64_t depth, uint32_t* to,
                                  int64_t to_step) {
  for (int64_t row = 0; row < rows; row += kBf16Lanes) {
    const __mmask16 there = first(rows - row);
    const int64_t count = std::min(kBf16Lanes, rows - row);
    for (int64_t d = 0; d < depth; d += kDepth) {
      __m512i words[kBf16Lanes];
#pragma GCC unroll 16
      for (int pair = 0; pair < kBf16Lanes; ++pair)
        words[pair] = words_across(from + (d + 2 * pair) * step + row, step, there, depth - d - 2 * pair);
      transpose(words);
      for (int64_t lane = 0; lane < count; ++lane)
        _mm512_storeu_si512(to + (row + lane) * to_step + d / 2, words[lane]);
    }
  }
}

MELETE_BF16_CODE void strip_along(const float* from, int64_t step, int64_t columns, int64_t depth,
                                  uint32_t* to) {
  for (int64_t part = 0; part < kBf16Columns; part += kBf16Lanes)
    for (int64_t d = 0; d < depth; d += kDepth) {
      __m512i words[kBf16Lanes];
#pragma GCC unroll 16
      for (int lane = 0; lane < kBf16Lanes; ++lane)
        words[lane] = part + lane < columns ? words_along(from + (part + lane) * step + d, depth - d)
                                            : _mm512_setzero_si512();
      transpose(words);
      for (int64_t pair = 0; pair < kBf16Lanes; ++pair)
        _mm512_storeu_si512(to + (d / 2 + pair) * kBf16Columns + part, words[pair]);
    }
}

MELETE_BF16_CODE void strip_across(const float* from, int64_t step, int64_t columns, int64_t depth,
                                   uint32_t* to) {
  const __mmask16 left = first(columns), right = first(columns - kBf16Lanes);
  for (int64_t d = 0; d < 2 * bf16_words(depth); d += 2, from += 2 * step, to += kBf16Columns) {
    _mm512_storeu_si512(to, words_across(from, step, left, depth - d));
    _mm512_storeu_si512(to + kBf16Lanes, words_across(from + kBf16Lanes, step, right, depth - d));
  }
}

constexpr int64_t kRows = 12;  // of a tile: twice as many sums, of the 32 registers

MELETE_BF16_CODE void tile(const uint32_t* a, int64_t a_step, const uint32_t* b, int64_t words,
                           const float* start, int64_t start_step, float* c, int64_t c_step, int64_t rows,
                           int64_t columns) {
  const __mmask16 left = first(columns), right = first(columns - kBf16Lanes);
  __m512 sums[kRows][2];
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r) {
    sums[r][0] = sums[r][1] = _mm512_setzero_ps();
    if (start && r < rows) {
      sums[r][0] = _mm512_maskz_loadu_ps(left, start + r * start_step);
      sums[r][1] = _mm512_maskz_loadu_ps(right, start + r * start_step + kBf16Lanes);
    }
  }
  // Three rows to a pointer: twelve pointers would not fit the registers.
  const uint32_t* of_rows[kRows / 3];
  for (int i = 0; i < kRows / 3; ++i) of_rows[i] = a + 3 * i * a_step;
  for (int64_t w = 0; w < words; ++w, b += kBf16Columns) {
    const __m512bh b0 = (__m512bh)_mm512_loadu_si512(b), b1 = (__m512bh)_mm512_loadu_si512(b + kBf16Lanes);
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) {
      const uint32_t word = of_rows[r / 3][w + r % 3 * a_step];
      const __m512bh pair = (__m512bh)_mm512_set1_epi32(static_cast<int>(word));
      sums[r][0] = _mm512_dpbf16_ps(sums[r][0], pair, b0);
      sums[r][1] = _mm512_dpbf16_ps(sums[r][1], pair, b1);
    }
  }
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r)
    if (r < rows) {
      _mm512_mask_storeu_ps(c + r * c_step, left, sums[r][0]);
      _mm512_mask_storeu_ps(c + r * c_step + kBf16Lanes, right, sums[r][1]);
    }
}

void nothing() {}

}  // namespace

const Bf16Tiles* bf16_tiles() {
  static const Bf16Tiles dots{kRows,        rows_along, rows_across, strip_along,
                              strip_across, tile,       nothing,     nothing};
  static const Bf16Tiles blocks{kAmxRows,     rows_along, rows_across, strip_along,
                                strip_across, amx_tile,   amx_begin,   amx_end};
  static const bool there = vector_level() >= VectorLevel::v4 && __builtin_cpu_supports("avx512bf16");
  static const Bf16Tiles* const best = !there                               ? nullptr
                                       : vector_level() == VectorLevel::amx ? &blocks
                                                                            : &dots;
  return best;
}

#else

const Bf16Tiles* bf16_tiles() {
  return nullptr;
}

#endif

}  // namespace melete

// How weights [out, in] lie in memory for products with few rows. Each layout takes a block of inputs at once
// and adds its products to sums; packed ones are read from front to back, and take no moves between lanes.
#pragma once

#include <ATen/ATen.h>

#include "kernels/lanes.h"
#include "kernels/weight_storage.h"

namespace melete {

constexpr int64_t kGroup = 4;  // outputs whose weights are read side by side

// The first `count` values of a block, then zeros.
template <int Vectors>
MELETE_INLINE void load_block(const float* from, int64_t count, LaneVector (&to)[Vectors]) {
  float room[Vectors * kLanes] = {};
  for (int64_t i = 0; i < count; ++i) room[i] = from[i];
#pragma GCC unroll 4
  for (int v = 0; v < Vectors; ++v) load<kLanes>(to[v], room + v * kLanes);
}

// float32, as a tensor has them.
struct PlainRow {
  static constexpr int kVectors = 2;  // of inputs in a block
  static constexpr int kSums = 2;     // of a result, so that additions need not wait for each other
  const float* row;
  int64_t in;

  static MELETE_INLINE PlainRow at(const void* values, int64_t in, int64_t output) {
    return {static_cast<const float*>(values) + output * in, in};
  }
  template <int Rows>
  MELETE_INLINE void add_products(int64_t number, const LaneVector (&x)[Rows][kVectors],
                                  LaneVector (&sums)[Rows][kSums]) const {
    const float* block = row + number * kVectors * kLanes;
    LaneVector weights[kVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      load<kLanes>(weights[v], block + v * kLanes);
      __builtin_prefetch(block + kGroup * in + v * kLanes);
    }
    add(weights, x, sums);
  }
  template <int Rows>
  MELETE_INLINE void add_rest(int64_t number, int64_t count, const LaneVector (&x)[Rows][kVectors],
                              LaneVector (&sums)[Rows][kSums]) const {
    LaneVector weights[kVectors];
    load_block(row + number * kVectors * kLanes, count, weights);
    add(weights, x, sums);
  }

 private:
  template <int Rows>
  static MELETE_INLINE void add(const LaneVector (&weights)[kVectors], const LaneVector (&x)[Rows][kVectors],
                                LaneVector (&sums)[Rows][kSums]) {
#pragma GCC unroll 2
    for (int r = 0; r < Rows; ++r) {
      sums[r][0] += weights[0] * x[r][0];
      sums[r][1] += weights[1] * x[r][1];
    }
  }
};

// Packed layouts: a block of one output is a vector of words, a cache line; after it come the same block of
// the group's other outputs, then the next block. Rows are filled up to whole blocks, groups to whole groups.
typedef uint32_t WordVector __attribute__((vector_size(kLanes * 4)));

// Far enough ahead for memory to answer in time; what lies behind the end is not read.
MELETE_INLINE void load_words(WordVector& words, const uint32_t* from) {
  typedef uint32_t InMemory __attribute__((vector_size(kLanes * 4), aligned(4), may_alias));
  __builtin_prefetch(from + 1024);
  words = *reinterpret_cast<const InMemory*>(from);
}

// bf16: a word holds weight `lane` of a block in its low half and weight `kLanes + lane` in its high half.
struct HalvesRow {
  static constexpr int kVectors = 2;
  static constexpr int kSums = 2;
  const uint32_t* words;

  static constexpr int64_t blocks(int64_t in) { return (in + kVectors * kLanes - 1) / (kVectors * kLanes); }
  static constexpr int64_t group_words(int64_t in) { return blocks(in) * kGroup * kLanes; }

  static MELETE_INLINE HalvesRow at(const void* values, int64_t in, int64_t output) {
    return {static_cast<const uint32_t*>(values) + output / kGroup * group_words(in) +
            output % kGroup * kLanes};
  }
  template <int Rows>
  MELETE_INLINE void add_products(int64_t number, const LaneVector (&x)[Rows][kVectors],
                                  LaneVector (&sums)[Rows][kSums]) const {
    WordVector both;
    load_words(both, words + number * kGroup * kLanes);
    const LaneVector first = (LaneVector)(both << 16), second = (LaneVector)(both & 0xffff0000u);
#pragma GCC unroll 2
    for (int r = 0; r < Rows; ++r) {
      sums[r][0] += first * x[r][0];
      sums[r][1] += second * x[r][1];
    }
  }
  template <int Rows>
  MELETE_INLINE void add_rest(int64_t number, int64_t, const LaneVector (&x)[Rows][kVectors],
                              LaneVector (&sums)[Rows][kSums]) const {
    add_products(number, x, sums);
  }
};

// int8 with one scale for a block: a word holds four weights of lane `lane`, that of vector v in byte v. They
// come out by shifting a byte to the top and reading the word as a number: what is below that byte is a
// fraction of a step, which packing has already taken into account, so nothing needs to be masked out.
// A group begins with its scales, [block][output], filled up to whole cache lines.
struct BytesRow {
  static constexpr int kVectors = 4;
  static constexpr int kSums = 1;
  const uint32_t* words;
  const float* scales;  // of a weight, times 2^-24

  static constexpr int64_t blocks(int64_t in) { return (in + kVectors * kLanes - 1) / (kVectors * kLanes); }
  static constexpr int64_t scale_words(int64_t in) {
    return (blocks(in) * kGroup + kLanes - 1) / kLanes * kLanes;
  }
  static constexpr int64_t group_words(int64_t in) { return scale_words(in) + blocks(in) * kGroup * kLanes; }

  static MELETE_INLINE BytesRow at(const void* values, int64_t in, int64_t output) {
    const auto* group = static_cast<const uint32_t*>(values) + output / kGroup * group_words(in);
    return {group + scale_words(in) + output % kGroup * kLanes,
            reinterpret_cast<const float*>(group) + output % kGroup};
  }
  template <int Rows>
  MELETE_INLINE void add_products(int64_t number, const LaneVector (&x)[Rows][kVectors],
                                  LaneVector (&sums)[Rows][kSums]) const {
    typedef Lanes<kLanes>::Integers Numbers;
    WordVector all;
    load_words(all, words + number * kGroup * kLanes);
    LaneVector weights[kVectors];
    weights[0] = __builtin_convertvector((Numbers)(all << 24), LaneVector);
    weights[1] = __builtin_convertvector((Numbers)(all << 16), LaneVector);
    weights[2] = __builtin_convertvector((Numbers)(all << 8), LaneVector);
    weights[3] = __builtin_convertvector((Numbers)all, LaneVector);
    const float scale = scales[number * kGroup];
#pragma GCC unroll 2
    for (int r = 0; r < Rows; ++r) {
      const LaneVector sum =
          (weights[0] * x[r][0] + weights[1] * x[r][1]) + (weights[2] * x[r][2] + weights[3] * x[r][3]);
      sums[r][0] += sum * scale;
    }
  }
  template <int Rows>
  MELETE_INLINE void add_rest(int64_t number, int64_t, const LaneVector (&x)[Rows][kVectors],
                              LaneVector (&sums)[Rows][kSums]) const {
    add_products(number, x, sums);
  }
};

// Contiguous float32 [out, in] -> the words of a packed layout: int32, on the CPU.
at::Tensor pack_weights(const at::Tensor& weight, WeightStorage storage);

}  // namespace melete

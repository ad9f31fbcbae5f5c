#include "kernels/weight_layouts.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <bit>
#include <limits>

#include "core/base/error.h"

namespace melete {

namespace {

constexpr int32_t kInfinityBits = 0x7f800000;

MELETE_INLINE uint32_t to_bf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;  // to the nearest, ties to even
  return value == value ? rounded : 0x7fc0;
}

MELETE_INLINE void pack_block(const float* values, uint32_t* words, HalvesRow) {
  for (int64_t lane = 0; lane < kLanes; ++lane)
    words[lane] = to_bf16(values[lane]) | to_bf16(values[kLanes + lane]) << 16;
}

// -> the scale of the block's words
MELETE_INLINE float pack_block(const float* values, uint32_t* words, BytesRow) {
  constexpr float kSteps = 127, kWord = 1.0f / (1 << 24);
  int32_t bits = 0;  // numbers without a sign are in the order of their bits, and infinity and NaN come last
  for (int64_t i = 0; i < BytesRow::kVectors * kLanes; ++i)
    bits = std::max(bits, std::bit_cast<int32_t>(values[i]) & 0x7fffffff);
  const float largest = std::bit_cast<float>(bits), scale = largest * (kWord / kSteps);
  std::fill_n(words, kLanes, 0);
  if (bits >= kInfinityBits) return std::numeric_limits<float>::quiet_NaN();  // a broken model stays so
  if (scale < std::numeric_limits<float>::min()) return 0;
  const float steps = kSteps / largest;
  float below = 1;  // what a step of this byte is to the word
  for (int v = 0; v < BytesRow::kVectors; ++v, below /= 256)
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      // The bytes below are a fraction from 0 to 1 that will be read along with this one.
      const float rest = values[v * kLanes + lane] * steps - static_cast<float>(words[lane]) * below;
      const auto byte = static_cast<int32_t>(rest + (rest < 0 ? -0.5f : 0.5f));
      words[lane] |= (static_cast<uint32_t>(byte) & 0xff) << (8 * v);
    }
  return scale;
}

struct Packing {
  const float* weights;
  int64_t in, out;
  uint32_t* words;
};

template <class Row, class Store>
MELETE_INLINE void pack_groups(const Packing& p, int64_t begin, int64_t end, Store store) {
  constexpr int64_t kBlock = Row::kVectors * kLanes;
  for (int64_t output = begin * kGroup; output < end * kGroup; ++output) {
    const Row row = Row::at(p.words, p.in, output);
    for (int64_t block = 0; block < Row::blocks(p.in); ++block) {
      float values[kBlock] = {};
      if (output < p.out)
        std::copy_n(p.weights + output * p.in + block * kBlock, std::min(kBlock, p.in - block * kBlock),
                    values);
      store(row, block, values);
    }
  }
}

MELETE_VECTOR_TARGETS
void pack_halves(const Packing& p, int64_t begin, int64_t end) {
  pack_groups<HalvesRow>(p, begin, end, [&](const HalvesRow& row, int64_t block, const float* values) {
    pack_block(values, const_cast<uint32_t*>(row.words) + block * kGroup * kLanes, row);
  });
}

MELETE_VECTOR_TARGETS
void pack_bytes(const Packing& p, int64_t begin, int64_t end) {
  pack_groups<BytesRow>(p, begin, end, [&](const BytesRow& row, int64_t block, const float* values) {
    const_cast<float*>(row.scales)[block * kGroup] =
        pack_block(values, const_cast<uint32_t*>(row.words) + block * kGroup * kLanes, row);
  });
}

}  // namespace

at::Tensor pack_weights(const at::Tensor& weight, WeightStorage storage) {
  const int64_t out = weight.size(0), in = weight.size(1), groups = (out + kGroup - 1) / kGroup;
  const bool bytes = storage == WeightStorage::int8;
  require(bytes || storage == WeightStorage::bf16, "[few_rows] float32 weights are not packed");
  const at::Tensor result =
      at::empty({groups, bytes ? BytesRow::group_words(in) : HalvesRow::group_words(in)}, at::kInt);
  const Packing packing{weight.data_ptr<float>(), in, out,
                        reinterpret_cast<uint32_t*>(result.data_ptr<int32_t>())};
  at::parallel_for(0, groups, 64, [&](int64_t begin, int64_t end) {
    bytes ? pack_bytes(packing, begin, end) : pack_halves(packing, begin, end);
  });
  return result;
}

}  // namespace melete

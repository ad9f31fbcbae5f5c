// The inner loops of products whose factors are rounded to bf16 (AVX-512's dot products of pairs): two values
// that follow each other in the depth of the product share a 32-bit word. The words of a factor lie in rows
// (those of a lane side by side), or in strips (those of a strip's lanes side by side, pair after pair).
#pragma once

#include <cstdint>

namespace melete {

constexpr int64_t kBf16Rows = 12;     // lanes of a strip of the left factor
constexpr int64_t kBf16Columns = 32;  // of the right one
constexpr int64_t kBf16Lanes = 16;    // that are laid out at once

struct Bf16Tiles {
  // depth values -> their words; the last half of an odd depth is zero.
  void (*to_words)(const float* from, int64_t depth, uint32_t* to);
  // Up to kBf16Lanes lanes of float32 into a strip that is `width` lanes wide, its words `to_step` apart;
  // lanes from `lanes` on are zero, and so is the last half word of an odd depth.
  // along: a lane's values lie side by side, lanes are `step` apart; across: the other way round.
  void (*pack_along)(const float* from, int64_t step, int64_t lanes, int64_t depth, uint32_t* to,
                     int64_t width, int64_t to_step);
  void (*pack_across)(const float* from, int64_t step, int64_t lanes, int64_t depth, uint32_t* to,
                      int64_t width, int64_t to_step);
  // c [rows, columns] = start + a * b over `pairs` words; rows up to kBf16Rows, columns up to kBf16Columns.
  // Words of a are row_step from row to row and pair_step from pair to pair, and there for kBf16Rows rows; b
  // is a strip. start may be null (zero), c itself, or one row for all (start_step 0).
  void (*tile)(const uint32_t* a, int64_t row_step, int64_t pair_step, const uint32_t* b, int64_t pairs,
               const float* start, int64_t start_step, float* c, int64_t c_step, int64_t rows,
               int64_t columns);
};

// Null where the processor has no such instructions, or MELETE_KERNELS asks for less.
const Bf16Tiles* bf16_tiles();

}  // namespace melete

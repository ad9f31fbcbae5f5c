// The inner loops of products whose factors are rounded to bf16: two values that follow each other in the
// depth of the product share a 32-bit word. The words of the left factor lie in rows (those of a row side by
// side), those of the right one in strips (those of a strip's columns side by side, pair after pair). Both
// are filled up with zeros to whole blocks of kBf16Lanes words of depth.
#pragma once

#include <cstdint>

namespace melete {

constexpr int64_t kBf16Columns = 32;   // of a strip of the right factor
constexpr int64_t kBf16Lanes = 16;     // words of a vector
constexpr int64_t kBf16MostRows = 32;  // of any kind of tile

// Words of so many values of depth, filled up to whole blocks.
constexpr int64_t bf16_words(int64_t depth) {
  return (depth + 2 * kBf16Lanes - 1) / (2 * kBf16Lanes) * kBf16Lanes;
}

struct Bf16Tiles {
  int64_t rows;  // of a tile: 12 by AVX-512's dot products of pairs, 32 by AMX
  // Rows of the left factor, rows `to_step` words apart, from values that lie along (a row's side by side,
  // rows `step` apart) or across (those of all rows side by side).
  void (*rows_along)(const float* from, int64_t step, int64_t rows, int64_t depth, uint32_t* to,
                     int64_t to_step);
  void (*rows_across)(const float* from, int64_t step, int64_t rows, int64_t depth, uint32_t* to,
                      int64_t to_step);
  // A strip of the right factor likewise; columns from `columns` on are zero.
  void (*strip_along)(const float* from, int64_t step, int64_t columns, int64_t depth, uint32_t* to);
  void (*strip_across)(const float* from, int64_t step, int64_t columns, int64_t depth, uint32_t* to);
  // c [rows, columns] = start + a * b over `words`; up to `rows` rows, columns above kBf16Columns are left
  // alone. Rows of a are a_step apart, and there is memory for a whole tile of them; b is a strip. start may
  // be null (zero), c itself, or one row for all (start_step 0).
  void (*tile)(const uint32_t* a, int64_t a_step, const uint32_t* b, int64_t words, const float* start,
               int64_t start_step, float* c, int64_t c_step, int64_t rows, int64_t columns);
  // Before a thread's first tile, and after its last one.
  void (*begin)();
  void (*end)();
};

// Null where the processor has no such instructions, or MELETE_KERNELS asks for less.
const Bf16Tiles* bf16_tiles();

// A thread makes tiles while it has one of these.
class Bf16Work {
 public:
  Bf16Work() { bf16_tiles()->begin(); }
  ~Bf16Work() { bf16_tiles()->end(); }
  Bf16Work(const Bf16Work&) = delete;
  Bf16Work& operator=(const Bf16Work&) = delete;
};

}  // namespace melete

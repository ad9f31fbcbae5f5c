// The products of attention over one head's keys and values, which are laid out once for all blocks of
// queries: in float32, or with factors rounded to bf16. Serial; attention.cpp shares out the work.
#pragma once

#include <cstdint>

#include "kernels/panel_product.h"

namespace melete {

// What a block of queries is multiplied in, [rows, dim] and scores [rows, keys] with rows `step` apart.
struct BlockShape {
  int64_t rows, dim, step;
  int64_t keys;      // that the block sees
  int64_t all_keys;  // that are laid out
};

// Both have: a head's rows of keys or values [all_keys, dim], `step` apart, laid out as `words` words (of 32
// bits) for the products with rows (by_row) and with scores (by_column); the three products; and what room a
// block of so many queries needs for them.
struct ExactProducts {
  static int64_t queries() { return 24; }
  static int64_t words_by_row(int64_t keys, int64_t dim) { return round_up(keys, kPanel) * dim; }
  static int64_t words_by_column(int64_t keys, int64_t dim) { return keys * dim; }
  static void lay_out_by_row(const float* from, int64_t step, int64_t keys, int64_t dim, float* to);
  static void lay_out_by_column(const float* from, int64_t step, int64_t keys, int64_t dim, float* to);
  static int64_t room(const BlockShape&) { return 0; }

  // rows [rows, dim] contiguous times keys: scores, for keys in whole panels
  static void rows_by_keys(const BlockShape& shape, const float* rows, const float* by_row, float* scores,
                           float* room);
  // scores times keys or values: [rows, dim], rows `to_step` apart
  static void scores_by_keys(const BlockShape& shape, const float* scores, const float* by_column, float* to,
                             int64_t to_step, float* room);
  // transposed scores times rows, added to sums [dim / kPanel, padded, kPanel]
  static void collect(const BlockShape& shape, const float* scores, const float* rows, float* sums,
                      int64_t padded, float* room);
};

struct RoundedProducts {
  static int64_t queries();  // whole tiles
  static int64_t words_by_row(int64_t keys, int64_t dim);
  static int64_t words_by_column(int64_t keys, int64_t dim);
  static void lay_out_by_row(const float* from, int64_t step, int64_t keys, int64_t dim, float* to);
  static void lay_out_by_column(const float* from, int64_t step, int64_t keys, int64_t dim, float* to);
  static int64_t room(const BlockShape& most);
  static void rows_by_keys(const BlockShape& shape, const float* rows, const float* by_row, float* scores,
                           float* room);
  static void scores_by_keys(const BlockShape& shape, const float* scores, const float* by_column, float* to,
                             int64_t to_step, float* room);
  static void collect(const BlockShape& shape, const float* scores, const float* rows, float* sums,
                      int64_t padded, float* room);
};

}  // namespace melete

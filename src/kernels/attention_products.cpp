#include "kernels/attention_products.h"

#include <algorithm>

#include "kernels/bf16_tiles.h"

namespace melete {

namespace {

constexpr int64_t kCollected = 64;  // rows that keys and values collect from at once, in the first cache

uint32_t* words(float* from) {
  return reinterpret_cast<uint32_t*>(from);
}
const uint32_t* words(const float* from) {
  return reinterpret_cast<const uint32_t*>(from);
}

// Words of a row of `depth` values, with room between rows: not a power of two, whose rows would share few
// sets of the cache.
int64_t row_words(int64_t depth) {
  return round_up(divide_up(depth, 2), kBf16Lanes) + kBf16Lanes;
}

// x [rows, depth] as rows of words
void round_rows(const float* x, int64_t step, int64_t rows, int64_t depth, uint32_t* to) {
  for (int64_t row = 0; row < rows; ++row)
    bf16_tiles()->to_words(x + row * step, depth, to + row * row_words(depth));
}

// c [rows, columns] = rows of words times strips, which are strip_step words apart
void rows_by_strips(const uint32_t* a, int64_t rows, int64_t depth, const uint32_t* strips,
                    int64_t strip_step, float* c, int64_t c_step, int64_t columns) {
  for (int64_t column = 0; column < columns; column += kBf16Columns, strips += strip_step)
    for (int64_t row = 0; row < rows; row += kBf16Rows)
      bf16_tiles()->tile(a + row * row_words(depth), row_words(depth), 1, strips, divide_up(depth, 2),
                         nullptr, 0, c + row * c_step + column, c_step, std::min(kBf16Rows, rows - row),
                         columns - column);
}

// x [depth, lanes] as strips of kBf16Columns lanes
void strips_across(const float* x, int64_t step, int64_t depth, int64_t lanes, uint32_t* to) {
  for (int64_t lane = 0; lane < lanes; lane += kBf16Columns, to += divide_up(depth, 2) * kBf16Columns)
    for (int64_t part = 0; part < kBf16Columns; part += kBf16Lanes)
      bf16_tiles()->pack_across(x + lane + part, step, kBf16Lanes, depth, to + part, kBf16Lanes,
                                kBf16Columns);
}

}  // namespace

// -> [dim / kPanel, keys, kPanel]
void ExactProducts::lay_out_by_column(const float* from, int64_t step, int64_t keys, int64_t dim, float* to) {
  for (int64_t panel = 0; panel < dim; panel += kPanel)
    for (int64_t key = 0; key < keys; ++key, to += kPanel) std::copy_n(from + key * step + panel, kPanel, to);
}

// -> [ceil(keys / kPanel), dim, kPanel], filled up with zeros
void ExactProducts::lay_out_by_row(const float* from, int64_t step, int64_t keys, int64_t dim, float* to) {
  for (int64_t panel = 0; panel < keys; panel += kPanel)
    for (int64_t i = 0; i < dim; ++i, to += kPanel)
      for (int64_t lane = 0; lane < kPanel; ++lane)
        to[lane] = panel + lane < keys ? from[(panel + lane) * step + i] : 0.f;
}

void ExactProducts::rows_by_keys(const BlockShape& shape, const float* rows, const float* by_row,
                                 float* scores, float*) {
  panel_product(rows, shape.dim, by_row, scores, shape.step, shape.rows, shape.dim,
                round_up(shape.keys, kPanel));
}

void ExactProducts::scores_by_keys(const BlockShape& shape, const float* scores, const float* by_column,
                                   float* to, int64_t to_step, float*) {
  for (int64_t panel = 0; panel < shape.dim; panel += kPanel)
    panel_product(scores, shape.step, by_column + panel * shape.all_keys, to + panel, to_step, shape.rows,
                  shape.keys, kPanel);
}

void ExactProducts::collect(const BlockShape& shape, const float* scores, const float* rows, float* sums,
                            int64_t padded, float*) {
  for (int64_t panel = 0; panel < shape.dim; panel += kPanel)
    for (int64_t row = 0; row < shape.rows; row += kCollected)
      panel_products().transposed_product(scores + row * shape.step, shape.step,
                                          rows + row * shape.dim + panel, shape.dim, sums + panel * padded,
                                          true, std::min(kCollected, shape.rows - row),
                                          round_up(shape.keys, kTransposedRows), kPanel);
}

int64_t RoundedProducts::words_by_row(int64_t keys, int64_t dim) {
  return round_up(keys, kBf16Columns) * divide_up(dim, 2);
}

int64_t RoundedProducts::words_by_column(int64_t keys, int64_t dim) {
  return divide_up(keys, 2) * round_up(dim, kBf16Columns);
}

void RoundedProducts::lay_out_by_row(const float* from, int64_t step, int64_t keys, int64_t dim, float* to) {
  const int64_t pairs = divide_up(dim, 2);
  for (int64_t key = 0; key < round_up(keys, kBf16Columns); key += kBf16Lanes)
    bf16_tiles()->pack_along(from + key * step, step, std::clamp<int64_t>(keys - key, 0, kBf16Lanes), dim,
                             words(to) + key / kBf16Columns * pairs * kBf16Columns + key % kBf16Columns,
                             kBf16Lanes, kBf16Columns);
}

void RoundedProducts::lay_out_by_column(const float* from, int64_t step, int64_t keys, int64_t dim,
                                        float* to) {
  strips_across(from, step, keys, dim, words(to));
}

int64_t RoundedProducts::room(const BlockShape& most) {
  const int64_t rows = round_up(most.rows, kBf16Rows);
  // Rows or scores as words; or rows in strips beside scores in strips.
  return std::max(rows * row_words(std::max(most.keys, most.dim)),
                  divide_up(most.rows, 2) * (most.dim + round_up(most.keys, kBf16Rows)));
}

void RoundedProducts::rows_by_keys(const BlockShape& shape, const float* rows, const float* by_row,
                                   float* scores, float* room) {
  round_rows(rows, shape.dim, shape.rows, shape.dim, words(room));
  rows_by_strips(words(room), shape.rows, shape.dim, words(by_row), divide_up(shape.dim, 2) * kBf16Columns,
                 scores, shape.step, round_up(shape.keys, kBf16Columns));
}

void RoundedProducts::scores_by_keys(const BlockShape& shape, const float* scores, const float* by_column,
                                     float* to, int64_t to_step, float* room) {
  round_rows(scores, shape.step, shape.rows, shape.keys, words(room));
  rows_by_strips(words(room), shape.rows, shape.keys, words(by_column),
                 divide_up(shape.all_keys, 2) * kBf16Columns, to, to_step, shape.dim);
}

void RoundedProducts::collect(const BlockShape& shape, const float* scores, const float* rows, float* sums,
                              int64_t padded, float* room) {
  const int64_t pairs = divide_up(shape.rows, 2);
  uint32_t *right = words(room), *left = right + pairs * shape.dim;
  strips_across(rows, shape.dim, shape.rows, shape.dim, right);
  for (int64_t key = 0; key < shape.keys; key += kBf16Rows) {
    const int64_t count = std::min(kBf16Rows, shape.keys - key);
    bf16_tiles()->pack_across(scores + key, shape.step, count, shape.rows, left, kBf16Rows, kBf16Rows);
    for (int64_t panel = 0; panel < shape.dim; panel += kPanel) {
      float* to = sums + panel * padded + key * kPanel;
      bf16_tiles()->tile(left, 1, kBf16Rows, right + panel * pairs, pairs, to, kPanel, to, kPanel, count,
                         kPanel);
    }
  }
}

}  // namespace melete

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

// From row to row of `depth` values: not a power of two, whose rows would share few sets of the cache.
int64_t row_words(int64_t depth) {
  return bf16_words(depth) + kBf16Lanes;
}

// c [rows, columns] = x [rows, depth], by way of the room, times strips that are strip_step words apart
void rows_by_strips(const float* x, int64_t x_step, int64_t rows, int64_t depth, const uint32_t* strips,
                    int64_t strip_step, float* c, int64_t c_step, int64_t columns, uint32_t* room) {
  const Bf16Tiles& tiles = *bf16_tiles();
  const Bf16Work work;
  tiles.rows_along(x, x_step, rows, depth, room, row_words(depth));
  for (int64_t column = 0; column < columns; column += kBf16Columns, strips += strip_step)
    for (int64_t row = 0; row < rows; row += tiles.rows)
      tiles.tile(room + row * row_words(depth), row_words(depth), strips, bf16_words(depth), nullptr, 0,
                 c + row * c_step + column, c_step, std::min(tiles.rows, rows - row), columns - column);
}

// x [depth, lanes] as strips of kBf16Columns lanes
void strips_across(const float* x, int64_t step, int64_t depth, int64_t lanes, uint32_t* to) {
  for (int64_t lane = 0; lane < lanes; lane += kBf16Columns, to += bf16_words(depth) * kBf16Columns)
    bf16_tiles()->strip_across(x + lane, step, lanes - lane, depth, to);
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

int64_t RoundedProducts::queries() {
  return bf16_tiles()->rows == kBf16MostRows ? kBf16MostRows : 2 * bf16_tiles()->rows;
}

int64_t RoundedProducts::words_by_row(int64_t keys, int64_t dim) {
  return round_up(keys, kBf16Columns) * bf16_words(dim);
}

int64_t RoundedProducts::words_by_column(int64_t keys, int64_t dim) {
  return bf16_words(keys) * round_up(dim, kBf16Columns);
}

void RoundedProducts::lay_out_by_row(const float* from, int64_t step, int64_t keys, int64_t dim, float* to) {
  for (int64_t key = 0; key < keys; key += kBf16Columns)
    bf16_tiles()->strip_along(from + key * step, step, keys - key, dim, words(to) + key * bf16_words(dim));
}

void RoundedProducts::lay_out_by_column(const float* from, int64_t step, int64_t keys, int64_t dim,
                                        float* to) {
  strips_across(from, step, keys, dim, words(to));
}

int64_t RoundedProducts::room(const BlockShape& most) {
  // Rows or scores as words; or rows in strips beside a tile's scores.
  return std::max((most.rows + kBf16MostRows) * row_words(std::max(most.keys, most.dim)),
                  bf16_words(most.rows) * most.dim + kBf16MostRows * row_words(most.rows));
}

void RoundedProducts::rows_by_keys(const BlockShape& shape, const float* rows, const float* by_row,
                                   float* scores, float* room) {
  rows_by_strips(rows, shape.dim, shape.rows, shape.dim, words(by_row), bf16_words(shape.dim) * kBf16Columns,
                 scores, shape.step, round_up(shape.keys, kBf16Columns), words(room));
}

void RoundedProducts::scores_by_keys(const BlockShape& shape, const float* scores, const float* by_column,
                                     float* to, int64_t to_step, float* room) {
  rows_by_strips(scores, shape.step, shape.rows, shape.keys, words(by_column),
                 bf16_words(shape.all_keys) * kBf16Columns, to, to_step, shape.dim, words(room));
}

void RoundedProducts::collect(const BlockShape& shape, const float* scores, const float* rows, float* sums,
                              int64_t padded, float* room) {
  const Bf16Tiles& tiles = *bf16_tiles();
  const Bf16Work work;
  const int64_t depth = bf16_words(shape.rows);
  uint32_t *right = words(room), *left = right + depth * shape.dim;
  strips_across(rows, shape.dim, shape.rows, shape.dim, right);
  for (int64_t key = 0; key < shape.keys; key += tiles.rows) {
    const int64_t count = std::min(tiles.rows, shape.keys - key);
    tiles.rows_across(scores + key, shape.step, count, shape.rows, left, row_words(shape.rows));
    for (int64_t panel = 0; panel < shape.dim; panel += kPanel) {
      float* to = sums + panel * padded + key * kPanel;
      tiles.tile(left, row_words(shape.rows), right + panel * depth, depth, to, kPanel, to, kPanel, count,
                 kPanel);
    }
  }
}

}  // namespace melete

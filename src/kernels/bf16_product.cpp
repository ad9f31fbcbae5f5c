#include "kernels/bf16_product.h"

#include <ATen/core/ivalue.h>
#include <ATen/Parallel.h>
#include <ATen/record_function.h>

#include <algorithm>

#include "kernels/bf16_tiles.h"
#include "kernels/panel_product.h"
#include "kernels/row_matrix.h"

namespace melete {

namespace {

constexpr int64_t kRowsAtOnce = 192;   // of the left factor, which stay in the second cache
constexpr int64_t kWordsAtOnce = 128;  // of the right one's strip, which stays in the first
// From row to row of the left factor's words: not a power of two, whose rows would share few sets of the
// cache.
constexpr int64_t kLeftStep = kWordsAtOnce + kBf16Lanes;

// One side of a product, as it lies in memory: `lanes` rows or columns of the result.
struct Factor {
  const float* values;
  int64_t step;
  bool along;  // a lane's values lie side by side; else those of all lanes do
  int64_t lanes;

  // Lanes from `begin` to `end`, `depth` values from `from` on, as rows that are kLeftStep words apart
  void pack_left(int64_t begin, int64_t end, int64_t from, int64_t depth, uint32_t* to) const {
    const auto pack = along ? bf16_tiles()->rows_along : bf16_tiles()->rows_across;
    pack(values + (along ? begin * step + from : from * step + begin), step, end - begin, depth, to,
         kLeftStep);
  }

  // kBf16Columns lanes from `lane` on as a strip
  void pack_right(int64_t lane, int64_t depth, uint32_t* to) const {
    const auto pack = along ? bf16_tiles()->strip_along : bf16_tiles()->strip_across;
    pack(values + (along ? lane * step : lane), step, lanes - lane, depth, to);
  }
};

uint32_t* words_of(const at::Tensor& room) {
  return reinterpret_cast<uint32_t*>(room.data_ptr<int32_t>());
}

// b in strips: [strips, words, kBf16Columns]
at::Tensor right_strips(const Factor& b, int64_t depth) {
  const int64_t strips = divide_up(b.lanes, kBf16Columns), words = bf16_words(depth);
  const at::Tensor room = at::empty({strips, words, kBf16Columns}, at::kInt);
  at::parallel_for(0, strips, 1, [&](int64_t begin, int64_t end) {
    for (int64_t strip = begin; strip < end; ++strip)
      b.pack_right(strip * kBf16Columns, depth, words_of(room) + strip * words * kBf16Columns);
  });
  return room;
}

// c [a.lanes, b.lanes] contiguous = bias (one row, or null) + a * b over `depth`
void multiply(const Factor& a, const Factor& b, int64_t depth, const float* bias, float* c) {
  const c10::IValue flops = product_flops(a.lanes, depth, b.lanes);
  RECORD_FUNCTION("melete::product", c10::ArrayRef<const c10::IValue>(flops));
  const Bf16Tiles& tiles = *bf16_tiles();
  const int64_t rows = a.lanes, columns = b.lanes, words = bf16_words(depth);
  const at::Tensor strips = right_strips(b, depth);
  at::parallel_for(0, divide_up(rows, kRowsAtOnce), 1, [&](int64_t begin, int64_t end) {
    const Bf16Work work;
    const at::Tensor room = at::empty({kRowsAtOnce * kLeftStep}, at::kInt);
    uint32_t* left = words_of(room);
    for (int64_t block = begin * kRowsAtOnce; block < std::min(rows, end * kRowsAtOnce);
         block += kRowsAtOnce) {
      const int64_t block_end = std::min(rows, block + kRowsAtOnce);
      for (int64_t word = 0; word < words; word += kWordsAtOnce) {
        const int64_t count = std::min(kWordsAtOnce, words - word);
        a.pack_left(block, block_end, 2 * word, std::min(2 * count, depth - 2 * word), left);
        for (int64_t column = 0; column < columns; column += kBf16Columns)
          for (int64_t row = block; row < block_end; row += tiles.rows) {
            float* to = c + row * columns + column;
            const float* start = word > 0 ? to : bias ? bias + column : nullptr;
            tiles.tile(left + (row - block) * kLeftStep, kLeftStep,
                       words_of(strips) + (column / kBf16Columns * words + word) * kBf16Columns, count, start,
                       word > 0 ? columns : 0, to, columns, std::min(tiles.rows, block_end - row),
                       columns - column);
          }
      }
    }
  });
}

}  // namespace

bool has_bf16_product(const at::Tensor& x, const at::Tensor& weight) {
  return bf16_tiles() != nullptr && is_float_on_cpu(x) && is_float_on_cpu(weight);
}

at::Tensor bf16_rows_by_weight(const at::Tensor& given, const at::Tensor& given_weight,
                               const at::Tensor& bias) {
  const RowMatrix x(given), weight(given_weight);
  const at::Tensor y = with_columns(given, weight.rows), offset = bias.defined() ? bias.contiguous() : bias;
  multiply({x.values, x.step, true, x.rows}, {weight.values, weight.step, true, weight.rows}, x.columns,
           offset.defined() ? offset.data_ptr<float>() : nullptr, y.data_ptr<float>());
  return y;
}

at::Tensor bf16_rows_gradient(const at::Tensor& given, const at::Tensor& given_weight) {
  const RowMatrix gradient(given), weight(given_weight);
  const at::Tensor result = with_columns(given, weight.columns);
  multiply({gradient.values, gradient.step, true, gradient.rows},
           {weight.values, weight.step, false, weight.columns}, weight.rows, nullptr,
           result.data_ptr<float>());
  return result;
}

at::Tensor bf16_weight_gradient(const at::Tensor& given, const at::Tensor& given_x) {
  const RowMatrix gradient(given), x(given_x);
  const at::Tensor result = at::empty({gradient.columns, x.columns}, given.options());
  multiply({gradient.values, gradient.step, false, gradient.columns}, {x.values, x.step, false, x.columns},
           x.rows, nullptr, result.data_ptr<float>());
  return result;
}

}  // namespace melete

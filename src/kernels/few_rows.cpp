#include "kernels/few_rows.h"

#include <ATen/core/grad_mode.h>
#include <ATen/Parallel.h>

#include <algorithm>

#include "core/autocast.h"
#include "core/base/error.h"
#include "kernels/weight_layouts.h"

namespace melete {

namespace {

// Bytes of weights that take longer to read than a thread that sleeps takes to wake: with an eighth of it a
// second thread made a small model's tokens take 1.5 to 2.8 times as long.
constexpr int64_t kBytesWorth = 2 << 20;

int64_t bytes_of(WeightStorage storage) {
  return storage == WeightStorage::float32 ? 4 : storage == WeightStorage::bf16 ? 2 : 1;
}

struct Product {
  const float *x, *bias;
  float* y;
  int64_t rows, in, out, y_step;
  bool add;
};

// `Outputs` outputs for `Rows` inputs. Every sum is taken in the same order, whatever their numbers: a row's
// result does not depend on what is computed beside it.
template <int Rows, int Outputs, class Weights>
MELETE_INLINE void tile(const Product& p, const Weights (&weights)[Outputs], int64_t output, int64_t row) {
  constexpr int64_t kBlock = Weights::kVectors * kLanes;
  LaneVector sums[Outputs][Rows][Weights::kSums] = {};
  LaneVector x[Rows][Weights::kVectors];
  const float* inputs = p.x + row * p.in;
  const int64_t whole = p.in / kBlock, rest = p.in % kBlock;
  for (int64_t block = 0; block < whole; ++block) {
#pragma GCC unroll 2
    for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < Weights::kVectors; ++v)
        load<kLanes>(x[r][v], inputs + r * p.in + block * kBlock + v * kLanes);
#pragma GCC unroll 4
    for (int o = 0; o < Outputs; ++o) weights[o].add_products(block, x, sums[o]);
  }
  if (rest > 0) {
#pragma GCC unroll 2
    for (int r = 0; r < Rows; ++r) load_block(inputs + r * p.in + whole * kBlock, rest, x[r]);
#pragma GCC unroll 4
    for (int o = 0; o < Outputs; ++o) weights[o].add_rest(whole, rest, x, sums[o]);
  }
#pragma GCC unroll 2
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 4
    for (int o = 0; o < Outputs; ++o) {
      LaneVector lanes = sums[o][r][0];
      if constexpr (Weights::kSums == 2) lanes += sums[o][r][1];
      float sum = sum_of(lanes);
      if (p.bias) sum += p.bias[output + o];
      float& y = p.y[(row + r) * p.y_step + output + o];
      y = p.add ? y + sum : sum;
    }
}

template <int Outputs, class Weights>
MELETE_INLINE void tiles(const Product& p, const Weights (&weights)[Outputs], int64_t output) {
  int64_t row = 0;
  for (; row + 2 <= p.rows; row += 2) tile<2>(p, weights, output, row);
  if (row < p.rows) tile<1>(p, weights, output, row);
}

template <class Weights>
MELETE_INLINE void outputs(const Product& p, const void* values, int64_t begin, int64_t end) {
  int64_t o = begin;
  for (; o + kGroup <= end; o += kGroup) {
    Weights weights[kGroup];
    for (int i = 0; i < kGroup; ++i) weights[i] = Weights::at(values, p.in, o + i);
    tiles(p, weights, o);
  }
  for (; o < end; ++o) {
    const Weights weights[1] = {Weights::at(values, p.in, o)};
    tiles(p, weights, o);
  }
}

MELETE_VECTOR_TARGETS
void multiply_plain(const Product& p, const void* values, int64_t begin, int64_t end) {
  outputs<PlainRow>(p, values, begin, end);
}

MELETE_VECTOR_TARGETS
void multiply_halves(const Product& p, const void* values, int64_t begin, int64_t end) {
  outputs<HalvesRow>(p, values, begin, end);
}

MELETE_VECTOR_TARGETS
void multiply_bytes(const Product& p, const void* values, int64_t begin, int64_t end) {
  outputs<BytesRow>(p, values, begin, end);
}

constexpr int64_t kColumns =
    1024;  // of the weights that are read in a row; their sums stay in the first cache

// y [rows, in] in columns begin to end += transpose of what multiply_plain does: y[row][i] = sum of
// gradient[row][o] * weight[o][i]. Four outputs at once, so that sums are loaded and stored a quarter as
// often.
MELETE_VECTOR_TARGETS
void multiply_back_plain(const Product& p, const float* weight, int64_t begin, int64_t end) {
  for (int64_t row = 0; row < p.rows; ++row) std::fill(p.y + row * p.in + begin, p.y + row * p.in + end, 0.f);
  for (int64_t o = 0; o < p.out; o += 4) {
    const int64_t count = std::min<int64_t>(4, p.out - o);
    const float* w[4];
    for (int64_t k = 0; k < 4; ++k) w[k] = weight + std::min(o + k, p.out - 1) * p.in;
    for (int64_t row = 0; row < p.rows; ++row) {
      float g[4] = {};
      for (int64_t k = 0; k < count; ++k) g[k] = p.x[row * p.out + o + k];
      float* y = p.y + row * p.in;
      int64_t i = begin;
      for (; i + kLanes <= end; i += kLanes) {
        LaneVector sum, values;
        load<kLanes>(sum, y + i);
#pragma GCC unroll 4
        for (int k = 0; k < 4; ++k) {
          load<kLanes>(values, w[k] + i);
          sum += g[k] * values;
        }
        store<kLanes>(sum, y + i);
      }
      for (; i < end; ++i)
        for (int k = 0; k < 4; ++k) y[i] += g[k] * w[k][i];
    }
  }
}

bool are_few_rows(const at::Tensor& x) {
  return x.device().is_cpu() && x.numel() <= kFewRows * x.size(-1) && x.scalar_type() == at::kFloat &&
         autocast_type(at::kCPU, at::kFloat) == at::kFloat;
}

}  // namespace

RowWeights::RowWeights(const at::Tensor& weight, WeightStorage storage)
    : in_(weight.size(1)), out_(weight.size(0)), storage_(storage) {
  const at::NoGradGuard no_grad;
  require(weight.scalar_type() == at::kFloat && weight.device().is_cpu(),
          "[few_rows] float32 weights on the CPU expected");
  values_ = weight.detach().contiguous();
  if (storage != WeightStorage::float32) values_ = pack_weights(values_, storage);
}

void RowWeights::multiply(const float* x, int64_t rows, const float* bias, float* y, int64_t y_step,
                          bool add) const {
  require(rows <= kFewRows, "[few_rows] at most {} rows, got {}", kFewRows, rows);
  const Product product{x, bias, y, rows, in_, out_, y_step, add};
  const void* values = values_.data_ptr();
  const int64_t grain =
      std::max<int64_t>(kGroup, kBytesWorth / bytes_of(storage_) / in_);  // outputs worth a thread
  at::parallel_for(0, (out_ + kGroup - 1) / kGroup, (grain + kGroup - 1) / kGroup,
                   [&](int64_t first, int64_t last) {
                     const int64_t begin = first * kGroup, end = std::min(last * kGroup, out_);
                     switch (storage_) {
                       case WeightStorage::float32:
                         return multiply_plain(product, values, begin, end);
                       case WeightStorage::bf16:
                         return multiply_halves(product, values, begin, end);
                       case WeightStorage::int8:
                         return multiply_bytes(product, values, begin, end);
                     }
                   });
}

at::Tensor RowWeights::multiply(const at::Tensor& x, const at::Tensor& bias) const {
  const at::NoGradGuard no_grad;
  require(x.size(-1) == in_, "[few_rows] inputs of width {} do not fit a weight of {} x {}", x.size(-1), out_,
          in_);
  const at::Tensor input = x.contiguous();
  auto shape = x.sizes().vec();
  shape.back() = out_;
  at::Tensor result = at::empty(shape, x.options());
  multiply(input.data_ptr<float>(), x.numel() / in_, bias.defined() ? bias.data_ptr<float>() : nullptr,
           result.data_ptr<float>(), out_);
  return result;
}

at::Tensor RowWeights::multiply_back(const at::Tensor& gradient) const {
  const at::NoGradGuard no_grad;
  require(storage_ == WeightStorage::float32 && gradient.size(-1) == out_,
          "[few_rows] gradients of width {} do not fit a float32 weight of {} x {}", gradient.size(-1), out_,
          in_);
  const at::Tensor given = gradient.contiguous();
  auto shape = gradient.sizes().vec();
  shape.back() = in_;
  at::Tensor result = at::empty(shape, gradient.options());
  const Product product{given.data_ptr<float>(),
                        nullptr,
                        result.data_ptr<float>(),
                        given.numel() / out_,
                        in_,
                        out_,
                        in_,
                        false};
  const float* weight = values_.data_ptr<float>();
  at::parallel_for(0, (in_ + kColumns - 1) / kColumns, 1, [&](int64_t first, int64_t last) {
    for (int64_t block = first; block < last; ++block)
      multiply_back_plain(product, weight, block * kColumns, std::min((block + 1) * kColumns, in_));
  });
  return result;
}

bool takes_few_rows(const at::Tensor& x) {
  return !at::GradMode::is_enabled() && are_few_rows(x);
}

bool takes_few_rows_of_frozen(const at::Tensor& x, const at::Tensor& weight) {
  return at::GradMode::is_enabled() && !weight.requires_grad() && are_few_rows(x);
}

}  // namespace melete

#include "kernels/few_rows.h"

#include <ATen/core/grad_mode.h>
#include <ATen/Parallel.h>

#include <algorithm>

#include "core/autocast.h"
#include "core/base/error.h"
#include "kernels/weight_layouts.h"

namespace melete {

namespace {

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
  const int64_t grain = std::max<int64_t>(kGroup, (1 << 16) / in_);  // outputs worth a thread
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

bool takes_few_rows(const at::Tensor& x) {
  return !at::GradMode::is_enabled() && x.device().is_cpu() && x.numel() <= kFewRows * x.size(-1) &&
         x.scalar_type() == at::kFloat && autocast_type(at::kCPU, at::kFloat) == at::kFloat;
}

}  // namespace melete

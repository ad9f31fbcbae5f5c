#include "kernels/few_rows.h"

#include <ATen/core/grad_mode.h>
#include <ATen/Parallel.h>

#include <algorithm>

#include "core/base/error.h"
#include "kernels/lanes.h"
#include "kernels/vector_math.h"
#include "kernels/vector_targets.h"

namespace melete {

namespace {

constexpr int64_t kBlock = 2 * kLanes;  // inputs taken at once
constexpr int kOutputs = 4;             // rows of weights that are read side by side

// The first `count` of a block, then zeros.
MELETE_INLINE void load_block(const float* from, int64_t count, LaneVector& first, LaneVector& second) {
  float room[kBlock] = {};
  for (int64_t i = 0; i < count; ++i) room[i] = from[i];
  load<kLanes>(first, room);
  load<kLanes>(second, room + kLanes);
}

// A row of weights gives a block of them as two vectors. float32: as they stand in memory.
struct Plain {
  const float* row;
  MELETE_INLINE void block(int64_t number, LaneVector& first, LaneVector& second) const {
    load<kLanes>(first, row + number * kBlock);
    load<kLanes>(second, row + number * kBlock + kLanes);
  }
  MELETE_INLINE void last_block(int64_t number, int64_t count, LaneVector& first, LaneVector& second) const {
    load_block(row + number * kBlock, count, first, second);
  }
};

// bf16: a word holds weight `lane` of a block in its low half and weight `kLanes + lane` in its high half, so
// that both come out without moving anything between lanes. The last block is filled up with zeros.
struct Halves {
  const uint32_t* row;
  MELETE_INLINE void block(int64_t number, LaneVector& first, LaneVector& second) const {
    typedef uint32_t Words __attribute__((vector_size(kLanes * 4)));
    typedef uint32_t InMemory __attribute__((vector_size(kLanes * 4), aligned(4), may_alias));
    const Words words = *reinterpret_cast<const InMemory*>(row + number * kLanes);
    first = (LaneVector)(words << 16);
    second = (LaneVector)(words & 0xffff0000u);
  }
  MELETE_INLINE void last_block(int64_t number, int64_t, LaneVector& first, LaneVector& second) const {
    block(number, first, second);
  }
};

struct Product {
  const float *x, *bias;
  float* y;
  int64_t rows, in, out, y_step;
  bool add;
};

// `Outputs` rows of weights times `Rows` inputs. Every sum is taken in the same order, whatever their
// numbers: a row's result does not depend on what is computed beside it.
template <int Rows, int Outputs, class Weights>
MELETE_INLINE void tile(const Product& p, const Weights* weights, int64_t output, int64_t row) {
  LaneVector sums[Rows][Outputs][2] = {};
  LaneVector x[Rows][2], first, second;
  const float* inputs = p.x + row * p.in;
  const int64_t whole = p.in / kBlock, rest = p.in % kBlock;
  const auto add_products = [&](int o) __attribute__((always_inline)) {
#pragma GCC unroll 2
    for (int r = 0; r < Rows; ++r) {
      sums[r][o][0] += first * x[r][0];
      sums[r][o][1] += second * x[r][1];
    }
  };
  for (int64_t block = 0; block < whole; ++block) {
#pragma GCC unroll 2
    for (int r = 0; r < Rows; ++r) {
      load<kLanes>(x[r][0], inputs + r * p.in + block * kBlock);
      load<kLanes>(x[r][1], inputs + r * p.in + block * kBlock + kLanes);
    }
#pragma GCC unroll 4
    for (int o = 0; o < Outputs; ++o) {
      weights[o].block(block, first, second);
      add_products(o);
    }
  }
  if (rest > 0) {
#pragma GCC unroll 2
    for (int r = 0; r < Rows; ++r) load_block(inputs + r * p.in + whole * kBlock, rest, x[r][0], x[r][1]);
#pragma GCC unroll 4
    for (int o = 0; o < Outputs; ++o) {
      weights[o].last_block(whole, rest, first, second);
      add_products(o);
    }
  }
#pragma GCC unroll 2
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 4
    for (int o = 0; o < Outputs; ++o) {
      float sum = sum_of(sums[r][o][0] + sums[r][o][1]);
      if (p.bias) sum += p.bias[output + o];
      float& y = p.y[(row + r) * p.y_step + output + o];
      y = p.add ? y + sum : sum;
    }
}

template <int Outputs, class Weights>
MELETE_INLINE void tiles(const Product& p, const Weights* weights, int64_t output) {
  int64_t row = 0;
  for (; row + 2 <= p.rows; row += 2) tile<2, Outputs>(p, weights, output, row);
  if (row < p.rows) tile<1, Outputs>(p, weights, output, row);
}

template <class Weights, class Pointer>
MELETE_INLINE void outputs(const Product& p, Pointer values, int64_t step, int64_t begin, int64_t end) {
  int64_t o = begin;
  for (; o + kOutputs <= end; o += kOutputs) {
    Weights weights[kOutputs];
    for (int i = 0; i < kOutputs; ++i) weights[i].row = values + (o + i) * step;
    tiles<kOutputs>(p, weights, o);
  }
  for (; o < end; ++o) {
    const Weights weights[1] = {{values + o * step}};
    tiles<1>(p, weights, o);
  }
}

MELETE_VECTOR_TARGETS
void multiply_plain(const Product& p, const float* values, int64_t begin, int64_t end) {
  outputs<Plain>(p, values, p.in, begin, end);
}

MELETE_VECTOR_TARGETS
void multiply_halves(const Product& p, const uint32_t* values, int64_t begin, int64_t end) {
  outputs<Halves>(p, values, (p.in + kBlock - 1) / kBlock * kLanes, begin, end);
}

at::Tensor pack(const at::Tensor& weight) {
  const int64_t out = weight.size(0), blocks = (weight.size(1) + kBlock - 1) / kBlock;
  const at::Tensor padded = at::constant_pad_nd(weight, {0, blocks * kBlock - weight.size(1)});
  return padded.to(at::kBFloat16).view({out, blocks, 2, kLanes}).transpose(2, 3).contiguous().view(at::kInt);
}

}  // namespace

RowWeights::RowWeights(const at::Tensor& weight, bool bf16)
    : in_(weight.size(1)), out_(weight.size(0)), bf16_(bf16) {
  const at::NoGradGuard no_grad;
  require(weight.scalar_type() == at::kFloat && weight.device().is_cpu(),
          "[few_rows] float32 weights on the CPU expected");
  values_ = bf16 ? pack(weight.detach()) : weight.detach().contiguous();
}

void RowWeights::multiply(const float* x, int64_t rows, const float* bias, float* y, int64_t y_step,
                          bool add) const {
  require(rows <= kFewRows, "[few_rows] at most {} rows, got {}", kFewRows, rows);
  const Product product{x, bias, y, rows, in_, out_, y_step, add};
  const int64_t grain = std::max<int64_t>(kOutputs, (1 << 16) / in_);  // rows of weights worth a thread
  at::parallel_for(0, (out_ + kOutputs - 1) / kOutputs, (grain + kOutputs - 1) / kOutputs,
                   [&](int64_t first, int64_t last) {
                     const int64_t begin = first * kOutputs, end = std::min(last * kOutputs, out_);
                     if (bf16_)
                       multiply_halves(product,
                                       reinterpret_cast<const uint32_t*>(values_.data_ptr<int32_t>()), begin,
                                       end);
                     else
                       multiply_plain(product, values_.data_ptr<float>(), begin, end);
                   });
}

at::Tensor linear_few_rows(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  const at::NoGradGuard no_grad;
  const RowWeights weights(weight, false);
  const int64_t rows = x.numel() / weights.inputs();
  require(x.size(-1) == weights.inputs(), "[few_rows] inputs of width {} do not fit a weight of {} x {}",
          x.size(-1), weights.outputs(), weights.inputs());
  const at::Tensor input = x.contiguous();
  auto shape = x.sizes().vec();
  shape.back() = weights.outputs();
  at::Tensor result = at::empty(shape, x.options());
  weights.multiply(input.data_ptr<float>(), rows, bias.defined() ? bias.data_ptr<float>() : nullptr,
                   result.data_ptr<float>(), weights.outputs());
  return result;
}

}  // namespace melete

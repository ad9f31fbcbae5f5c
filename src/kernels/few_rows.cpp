#include "kernels/few_rows.h"

#include <ATen/core/grad_mode.h>
#include <ATen/Parallel.h>

#include "core/base/error.h"
#include "kernels/vector_targets.h"

namespace melete {

namespace {

constexpr int64_t kLanes = 16;

// Dot products of one weight row with `Rows` inputs; lanes are summed at the end in a fixed order.
template <int Rows>
[[gnu::always_inline]] inline void dot(const float* __restrict weight, const float* __restrict x, int64_t in,
                                       float* __restrict sums) {
  float lanes[Rows][2][kLanes] = {};
  int64_t i = 0;
  for (; i + 2 * kLanes <= in; i += 2 * kLanes)
    for (int row = 0; row < Rows; ++row)
      for (int half = 0; half < 2; ++half)
        for (int64_t lane = 0; lane < kLanes; ++lane)
          lanes[row][half][lane] += weight[i + half * kLanes + lane] * x[row * in + i + half * kLanes + lane];
  for (int row = 0; row < Rows; ++row) {
    float sum = 0;
    for (int64_t lane = 0; lane < kLanes; ++lane) sum += lanes[row][0][lane] + lanes[row][1][lane];
    for (int64_t j = i; j < in; ++j) sum += weight[j] * x[row * in + j];
    sums[row] = sum;
  }
}

template <int Rows>
[[gnu::always_inline]] inline void rows_of(const float* weight, const float* bias, const float* x, float* y,
                                           int64_t in, int64_t out, int64_t begin, int64_t end) {
  float sums[Rows];
  for (int64_t o = begin; o < end; ++o) {
    dot<Rows>(weight + o * in, x, in, sums);
    for (int row = 0; row < Rows; ++row) y[row * out + o] = sums[row] + (bias ? bias[o] : 0.f);
  }
}

MELETE_VECTOR_TARGETS
void range(const float* weight, const float* bias, const float* x, float* y, int64_t rows, int64_t in,
           int64_t out, int64_t begin, int64_t end) {
  int64_t row = 0;
  for (; row + 4 <= rows; row += 4)
    rows_of<4>(weight, bias, x + row * in, y + row * out, in, out, begin, end);
  for (; row + 2 <= rows; row += 2)
    rows_of<2>(weight, bias, x + row * in, y + row * out, in, out, begin, end);
  if (row < rows) rows_of<1>(weight, bias, x + row * in, y + row * out, in, out, begin, end);
}

}  // namespace

at::Tensor linear_few_rows(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  const at::NoGradGuard no_grad;
  const int64_t out = weight.size(0), in = weight.size(1), rows = x.numel() / in;
  require(x.size(-1) == in && rows <= kFewRows, "[few_rows] {} rows of {} do not fit a weight of {} x {}",
          rows, x.size(-1), out, in);
  const at::Tensor input = x.contiguous(), w = weight.contiguous();
  auto shape = x.sizes().vec();
  shape.back() = out;
  at::Tensor result = at::empty(shape, x.options());
  const float* from = input.data_ptr<float>();
  const float* weights = w.data_ptr<float>();
  const float* shift = bias.defined() ? bias.data_ptr<float>() : nullptr;
  float* to = result.data_ptr<float>();
  const int64_t grain = std::max<int64_t>(1, (1 << 16) / in);  // rows of weights worth a thread
  at::parallel_for(0, out, grain, [&](int64_t begin, int64_t end) {
    range(weights, shift, from, to, rows, in, out, begin, end);
  });
  return result;
}

}  // namespace melete

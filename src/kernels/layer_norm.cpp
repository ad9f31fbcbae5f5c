#include "kernels/layer_norm.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/lanes.h"
#include "kernels/shares.h"
#include "kernels/vector_targets.h"

namespace melete {

namespace {

constexpr int64_t kShares = 8;  // of the rows: each has its own sums for the weights' gradients

struct Rows {
  const float *x, *weight, *bias;  // bias may be null
  float *mean, *inverse;
  int64_t n;
};

// value * gelu(gate), and the share of a standard normal below the gate
MELETE_INLINE void gate_row(const float* __restrict row, float* __restrict y, float* __restrict below,
                            int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    below[i] = normal_below(row[n + i]);
    y[i] = row[i] * row[n + i] * below[i];
  }
}

MELETE_INLINE void gate_gradient_row(const float* __restrict gradient, const float* __restrict row,
                                     const float* __restrict below, float* __restrict result, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    result[i] = gradient[i] * row[n + i] * below[i];
    result[n + i] = gradient[i] * row[i] * gelu_slope(row[n + i], below[i]);
  }
}

MELETE_INLINE void normalise_row(const Rows& rows, const float* __restrict x, float* __restrict y,
                                 int64_t row) {
  const int64_t n = rows.n;
  const float* __restrict weight = rows.weight;
  const float* __restrict bias = rows.bias;
  const auto count = static_cast<float>(n);
  const float mean = sum_over(n, [&](int64_t i) { return x[i]; }) / count;
  const float spread = sum_over(n, [&](int64_t i) { return (x[i] - mean) * (x[i] - mean); }) / count;
  const float inverse = 1 / std::sqrt(spread + static_cast<float>(kNormEpsilon));
  rows.mean[row] = mean;
  rows.inverse[row] = inverse;
  if (bias)
    for (int64_t i = 0; i < n; ++i) y[i] = (x[i] - mean) * inverse * weight[i] + bias[i];
  else
    for (int64_t i = 0; i < n; ++i) y[i] = (x[i] - mean) * inverse * weight[i];
}

// sums [2, n] collect the gradients of weight and bias.
MELETE_INLINE void gradient_row(const Rows& rows, const float* __restrict g, const float* __restrict x,
                                float* __restrict result, float* __restrict sums, int64_t row) {
  const int64_t n = rows.n;
  const float* __restrict weight = rows.weight;
  const float mean = rows.mean[row], inverse = rows.inverse[row];
  const auto count = static_cast<float>(n);
  const float level = sum_over(n, [&](int64_t i) { return g[i] * weight[i]; }) / count;
  const float slope =
      sum_over(n, [&](int64_t i) { return g[i] * weight[i] * (x[i] - mean); }) * inverse * inverse / count;
  for (int64_t i = 0; i < n; ++i) {
    const float centred = x[i] - mean;
    result[i] = (g[i] * weight[i] - level - centred * slope) * inverse;
    sums[i] += g[i] * centred * inverse;
    sums[n + i] += g[i];
  }
}

MELETE_VECTOR_TARGETS
void plain_forward(const Rows& rows, float* y, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row)
    normalise_row(rows, rows.x + row * rows.n, y + row * rows.n, row);
}

MELETE_VECTOR_TARGETS
void gated_forward(const Rows& rows, float* y, int64_t begin, int64_t end, float* room) {
  const int64_t n = rows.n;
  for (int64_t row = begin; row < end; ++row) {
    gate_row(rows.x + row * 2 * n, room, room + n, n);
    normalise_row(rows, room, y + row * n, row);
  }
}

MELETE_VECTOR_TARGETS
void plain_backward(const Rows& rows, const float* g, float* result, float* sums, int64_t begin,
                    int64_t end) {
  const int64_t n = rows.n;
  for (int64_t row = begin; row < end; ++row)
    gradient_row(rows, g + row * n, rows.x + row * n, result + row * n, sums, row);
}

MELETE_VECTOR_TARGETS
void gated_backward(const Rows& rows, const float* g, float* result, float* sums, int64_t begin, int64_t end,
                    float* room) {
  const int64_t n = rows.n;
  float *hidden = room, *below = room + n, *above = room + 2 * n;
  for (int64_t row = begin; row < end; ++row) {
    const float* x = rows.x + row * 2 * n;
    gate_row(x, hidden, below, n);
    gradient_row(rows, g + row * n, hidden, above, sums, row);
    gate_gradient_row(above, x, below, result + row * 2 * n, n);
  }
}

int64_t row_count(const at::Tensor& x) {
  return x.size(-1) == 0 ? 0 : x.numel() / x.size(-1);
}

}  // namespace

bool has_layer_norm(const at::Tensor& x) {
  return x.device().is_cpu() && x.scalar_type() == at::kFloat;
}

LayerNormOutput layer_norm_forward(const at::Tensor& x, NormInput input, const at::Tensor& weight,
                                   const at::Tensor& bias) {
  const at::Tensor from = x.contiguous();
  const int64_t n = weight.size(0), count = row_count(from);
  auto shape = from.sizes().vec();
  shape.back() = n;
  LayerNormOutput result;
  result.values = at::empty(shape, from.options());
  shape.back() = 1;
  result.mean = at::empty(shape, from.options());
  result.inverse = at::empty(shape, from.options());
  const Rows rows{from.data_ptr<float>(),
                  weight.data_ptr<float>(),
                  bias.defined() ? bias.data_ptr<float>() : nullptr,
                  result.mean.data_ptr<float>(),
                  result.inverse.data_ptr<float>(),
                  n};
  float* y = result.values.data_ptr<float>();
  at::parallel_for(0, count, std::max<int64_t>(1, (1 << 14) / n), [&](int64_t begin, int64_t end) {
    if (input == NormInput::plain) return plain_forward(rows, y, begin, end);
    std::vector<float> room(static_cast<size_t>(2 * n));
    gated_forward(rows, y, begin, end, room.data());
  });
  return result;
}

LayerNormGradient layer_norm_backward(const at::Tensor& gradient, const at::Tensor& x, NormInput input,
                                      const at::Tensor& weight, const at::Tensor& mean,
                                      const at::Tensor& inverse) {
  const at::Tensor from = x.contiguous(), above = gradient.contiguous();
  const int64_t n = weight.size(0), count = row_count(from);
  LayerNormGradient result;
  result.x = at::empty_like(from);
  const at::Tensor sums = at::zeros({kShares, 2, n}, from.options());
  const Rows rows{from.data_ptr<float>(), weight.data_ptr<float>(),  nullptr,
                  mean.data_ptr<float>(), inverse.data_ptr<float>(), n};
  const float* g = above.data_ptr<float>();
  float* to = result.x.data_ptr<float>();
  at::parallel_for(0, kShares, 1, [&](int64_t first, int64_t last) {
    std::vector<float> room(static_cast<size_t>(input == NormInput::gated ? 3 * n : 0));
    for (int64_t share = first; share < last; ++share) {
      const int64_t begin = count * share / kShares, end = count * (share + 1) / kShares;
      float* into = sums.data_ptr<float>() + share * 2 * n;
      if (input == NormInput::plain)
        plain_backward(rows, g, to, into, begin, end);
      else
        gated_backward(rows, g, to, into, begin, end, room.data());
    }
  });
  const at::Tensor total = sum_of_shares(sums);
  result.weight = total[0];
  result.bias = total[1];
  return result;
}

}  // namespace melete

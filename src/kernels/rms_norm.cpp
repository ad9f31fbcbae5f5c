#include "kernels/rms_norm.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>

#include "kernels/lanes.h"
#include "kernels/panel_product.h"
#include "kernels/shares.h"
#include "kernels/vector_targets.h"

namespace melete {

namespace {

// Rows [outer, inner, n], as views of a projection have them.
struct Rows {
  explicit Rows(const at::Tensor& given) : n(given.size(-1)), inner(given.dim() < 2 ? 1 : given.size(-2)) {
    values = given.reshape({-1, inner, n});
    if (values.stride(2) != 1) values = values.contiguous();
    outer_step = values.stride(0);
    inner_step = values.stride(1);
  }
  int64_t count() const { return values.size(0) * inner; }
  float* row(int64_t i) const {
    return values.data_ptr<float>() + i / inner * outer_step + i % inner * inner_step;
  }

  int64_t n, inner, outer_step, inner_step;
  at::Tensor values;
};

// The rows that share a gain: first, first + step, ...
struct Group {
  int64_t first, step, rows;
};

Group group_of(const RmsNormInput& in, int64_t gain, int64_t rows) {
  const int64_t gains = in.gain.size(0), each = rows / gains;
  return in.gain_of == GainOf::head ? Group{gain, gains, each} : Group{gain * each, 1, each};
}

MELETE_VECTOR_TARGETS
float normalise(const float* __restrict x, const float* __restrict gain, const float* __restrict shift,
                float* __restrict y, int64_t n) {
  const float length = std::sqrt(sum_over(n, [&](int64_t i) { return x[i] * x[i]; }));
  const float inverse = std::sqrt(static_cast<float>(n)) / std::max(length, static_cast<float>(kShortestRow));
  if (shift)
    for (int64_t i = 0; i < n; ++i) y[i] = x[i] * inverse * gain[i] + shift[i];
  else
    for (int64_t i = 0; i < n; ++i) y[i] = x[i] * inverse * gain[i];
  return inverse;
}

// sums [2, n] collect the gradients of gain and shift.
MELETE_VECTOR_TARGETS
void gradient_row(const float* __restrict g, const float* __restrict x, const float* __restrict gain,
                  float inverse, float* __restrict result, float* __restrict sums, int64_t n) {
  const auto count = static_cast<float>(n);
  // The length of a row that is too short does not count.
  const bool counts = inverse < std::sqrt(count) / static_cast<float>(kShortestRow);
  const float along = sum_over(n, [&](int64_t i) { return g[i] * gain[i] * x[i]; });
  const float slope = counts ? along * inverse * inverse / count : 0;
  for (int64_t i = 0; i < n; ++i) {
    result[i] = (g[i] * gain[i] - x[i] * slope) * inverse;
    sums[i] += g[i] * x[i] * inverse;
    sums[n + i] += g[i];
  }
}

}  // namespace

bool has_rms_norm(const at::Tensor& x) {
  return x.device().is_cpu() && x.scalar_type() == at::kFloat;
}

void rms_norm_row(const float* x, const float* gain, float* y, int64_t n) {
  normalise(x, gain, nullptr, y, n);
}

RmsNormOutput rms_norm_forward(const RmsNormInput& in) {
  const Rows x(in.x);
  const at::Tensor gain = in.gain.contiguous(), shift = in.shift.defined() ? in.shift.contiguous() : in.shift;
  const int64_t n = x.n, gains = gain.size(0), each = x.count() / gains;
  RmsNormOutput result{at::empty(in.x.sizes(), in.x.options()), at::empty({x.count()}, in.x.options())};
  float* y = result.values.data_ptr<float>();
  float* inverse = result.inverse.data_ptr<float>();
  at::parallel_for(0, x.count(), std::max<int64_t>(1, (1 << 14) / n), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t at = (in.gain_of == GainOf::head ? row % gains : row / each) * n;
      inverse[row] = normalise(x.row(row), gain.data_ptr<float>() + at,
                               shift.defined() ? shift.data_ptr<float>() + at : nullptr, y + row * n, n);
    }
  });
  return result;
}

RmsNormGradient rms_norm_backward(const RmsNormInput& in, const at::Tensor& inverses,
                                  const at::Tensor& gradient) {
  const Rows x(in.x), above(gradient);
  const at::Tensor gain = in.gain.contiguous();
  const int64_t n = x.n, gains = gain.size(0);
  // Rows of a gain are dealt out to shares, each with its own sums, whatever the number of threads.
  const int64_t shares = divide_up(8, gains);
  const at::Tensor sums = at::zeros({shares, gains, 2, n}, in.x.options());
  RmsNormGradient result;
  result.x = at::empty(in.x.sizes(), in.x.options());
  float* to = result.x.data_ptr<float>();
  const float* inverse = inverses.data_ptr<float>();
  at::parallel_for(0, shares * gains, 1, [&](int64_t first, int64_t last) {
    for (int64_t task = first; task < last; ++task) {
      const int64_t share = task / gains, which = task % gains;
      const Group group = group_of(in, which, x.count());
      for (int64_t i = group.rows * share / shares; i < group.rows * (share + 1) / shares; ++i) {
        const int64_t row = group.first + i * group.step;
        gradient_row(above.row(row), x.row(row), gain.data_ptr<float>() + which * n, inverse[row],
                     to + row * n, sums.data_ptr<float>() + task * 2 * n, n);
      }
    }
  });
  const at::Tensor total = sum_of_shares(sums);
  result.gain = total.select(1, 0);
  result.shift = total.select(1, 1);
  return result;
}

}  // namespace melete

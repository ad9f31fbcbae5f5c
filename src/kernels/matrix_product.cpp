#include "kernels/matrix_product.h"

#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>
#include <dlfcn.h>

#include <algorithm>

#include "core/base/error.h"
#include "kernels/row_matrix.h"

namespace melete {

namespace {

// Rows that a weight's gradient is summed over at once: with more of them oneDNN's copies leave the second
// cache.
constexpr int64_t kSummedRows = 256;
// Columns in steps of other than a vector make its copies of transposed matrices slow.
constexpr int64_t kVector = 16;

// Row by row: c [m, n] = beta * c + alpha * a [m, k] * b [k, n], either of them transposed ('T') or not
// ('N'); each with the step from row to row as it lies in memory. 0: done.
using Sgemm = int (*)(char, char, int64_t, int64_t, int64_t, float, const float*, int64_t, const float*,
                      int64_t, float, float*, int64_t);

Sgemm onednn() {
  static const auto found = reinterpret_cast<Sgemm>(dlsym(RTLD_DEFAULT, "dnnl_sgemm"));
  return found;
}

void multiply(char a_as, char b_as, int64_t rows, int64_t columns, int64_t depth, const RowMatrix& a,
              int64_t a_from, const RowMatrix& b, int64_t b_from, bool add, const at::Tensor& c) {
  const int failed =
      onednn()(a_as, b_as, rows, columns, depth, 1, a.values + a_from * a.step, a.step,
               b.values + b_from * b.step, b.step, add ? 1.f : 0.f, c.data_ptr<float>(), columns);
  require(failed == 0, "[matrix_product] oneDNN refused {} x {} x {}", rows, depth, columns);
}

}  // namespace

bool has_matrix_product(const at::Tensor& x, const at::Tensor& weight) {
  return onednn() != nullptr && is_float_on_cpu(x) && is_float_on_cpu(weight);
}

at::Tensor rows_by_weight(const at::Tensor& given, const at::Tensor& given_weight, const at::Tensor& bias) {
  const RowMatrix x(given), weight(given_weight);
  const c10::IValue count = product_flops(x.rows, x.columns, weight.rows);
  RECORD_FUNCTION("melete::product", c10::ArrayRef<const c10::IValue>(count));
  at::Tensor y = with_columns(given, weight.rows);
  if (bias.defined()) y.copy_(bias);
  multiply('N', 'T', x.rows, weight.rows, x.columns, x, 0, weight, 0, bias.defined(), y);
  return y;
}

at::Tensor rows_gradient(const at::Tensor& given, const at::Tensor& given_weight) {
  const RowMatrix gradient(given), weight(given_weight);
  const c10::IValue count = product_flops(gradient.rows, weight.columns, weight.rows);
  RECORD_FUNCTION("melete::product", c10::ArrayRef<const c10::IValue>(count));
  const at::Tensor result = with_columns(given, weight.columns);
  multiply('N', 'N', gradient.rows, weight.columns, weight.rows, gradient, 0, weight, 0, false, result);
  return result;
}

at::Tensor weight_gradient(const at::Tensor& given, const at::Tensor& given_x) {
  const RowMatrix gradient(given), x(given_x);
  const int64_t rows = x.rows, in = x.columns, out = gradient.columns;
  if (out % kVector != 0) return at::mm(gradient.tensor.t(), x.tensor);
  const c10::IValue count = product_flops(rows, in, out);
  RECORD_FUNCTION("melete::product", c10::ArrayRef<const c10::IValue>(count));
  const at::Tensor result = at::empty({out, in}, given.options());
  for (int64_t row = 0; row < rows; row += kSummedRows)
    multiply('T', 'N', out, in, std::min(kSummedRows, rows - row), gradient, row, x, row, row > 0, result);
  return result;
}

}  // namespace melete

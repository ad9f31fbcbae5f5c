// A tensor's last axis and all others as the matrix that they are in memory, and what a product of it counts.
#pragma once

#include <ATen/ATen.h>

#include <algorithm>

namespace melete {

// x [..., columns] float32: rows that are `step` apart.
struct RowMatrix {
  explicit RowMatrix(const at::Tensor& x) : tensor(x.reshape({-1, x.size(-1)})) {
    if (tensor.stride(1) != 1 || tensor.stride(0) < tensor.size(1)) tensor = tensor.contiguous();
    rows = tensor.size(0);
    columns = tensor.size(1);
    step = std::max(tensor.stride(0), columns);  // that of a single row may be anything
    values = tensor.data_ptr<float>();
  }

  at::Tensor tensor;
  int64_t rows, columns, step;
  float* values;
};

// [..., any] -> an empty [..., columns]
inline at::Tensor with_columns(const at::Tensor& like, int64_t columns) {
  auto shape = like.sizes().vec();
  shape.back() = columns;
  return at::empty(shape, like.options());
}

// What measure/flops.h reads off a product that no operator of LibTorch computes.
inline c10::IValue product_flops(int64_t rows, int64_t in, int64_t out) {
  return 2.0 * static_cast<double>(rows * in * out);
}

inline bool is_float_on_cpu(const at::Tensor& t) {
  return t.device().is_cpu() && t.scalar_type() == at::kFloat && t.numel() > 0;
}

}  // namespace melete

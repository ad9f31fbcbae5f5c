// What lies nearest in a joint space.
#pragma once

#include <ATen/ATen.h>

#include <vector>

namespace melete::musiclm {

struct Match {
  int64_t row = 0;
  double score = 0;  // product of unit vectors: 1 is the same direction
};

// vectors [rows, dim], query [dim], all unit vectors -> the best `top`, best first; rows that are equally
// near come in their order. Exact: one product with every row.
std::vector<Match> nearest(const at::Tensor& vectors, const at::Tensor& query, int64_t top);

}  // namespace melete::musiclm

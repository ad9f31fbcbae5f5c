// The last layer of a stage, from the transformer's outputs to logits, as generation reads it.
#pragma once

#include <ATen/ATen.h>

#include <optional>
#include <vector>

#include "kernels/few_rows.h"

namespace melete {

class LogitHead {
 public:
  // weight [classes, dim], bias [classes] or undefined
  LogitHead(const at::Tensor& weight, const at::Tensor& bias, WeightStorage storage);
  at::Tensor operator()(const at::Tensor& y) const;  // [rows, dim] -> [rows, classes]

 private:
  at::Tensor weight_, bias_;
  std::optional<RowWeights> packed_;  // on the CPU, for few rows
};

// One for every quantizer: weights [quantizers, classes, dim]
std::vector<LogitHead> logit_heads(const at::Tensor& weights, WeightStorage storage);

}  // namespace melete

// fp16 has no numbers between 0 and 6e-8, where many gradients are: the loss is multiplied before the
// backward pass and gradients are divided after it. Halved when they overflow (that step is skipped), doubled
// after a while without.
#pragma once

#include <ATen/ATen.h>

#include <vector>

#include "io/tensors.h"

namespace melete {

class LossScale {
 public:
  explicit LossScale(bool used) : used_(used), value_(used ? 65536 : 1) {}

  double value() const { return value_; }
  void apply(const std::vector<at::Tensor>& parameters) const {
    multiply(parameters, value_);
  }  // to gradients
  void undo(const std::vector<at::Tensor>& parameters) const { multiply(parameters, 1 / value_); }
  void judge(bool finite);  // once a step

  void state(TensorMap& tensors, const std::string& prefix) const;  // nothing where it is not used
  void load(const TensorMap& tensors, const std::string& prefix);

 private:
  void multiply(const std::vector<at::Tensor>& parameters, double by) const;

  bool used_;
  double value_;  // a power of two: exact
  int64_t good_in_a_row_ = 0;
};

}  // namespace melete

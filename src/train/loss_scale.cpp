#include "train/loss_scale.h"

#include <algorithm>

namespace melete {

namespace {

constexpr int64_t kPatience = 2000;  // good steps before it is doubled

}  // namespace

void LossScale::judge(bool finite) {
  if (!used_) return;
  good_in_a_row_ = finite ? good_in_a_row_ + 1 : 0;
  if (!finite) value_ = std::max(1.0, value_ / 2);
  if (good_in_a_row_ == kPatience) {
    value_ *= 2;
    good_in_a_row_ = 0;
  }
}

void LossScale::multiply(const std::vector<at::Tensor>& parameters, double by) const {
  if (!used_) return;
  for (const at::Tensor& parameter : parameters)
    if (parameter.grad().defined()) parameter.grad().mul_(by);
}

void LossScale::state(TensorMap& tensors, const std::string& prefix) const {
  if (!used_) return;
  tensors[prefix + "scale"] = at::full({}, value_, at::kDouble);
  tensors[prefix + "good_steps"] = at::full({}, good_in_a_row_, at::kLong);
}

void LossScale::load(const TensorMap& tensors, const std::string& prefix) {
  const auto scale = tensors.find(prefix + "scale"), good = tensors.find(prefix + "good_steps");
  if (!used_ || scale == tensors.end() || good == tensors.end()) return;
  value_ = scale->second.item<double>();
  good_in_a_row_ = good->second.item<int64_t>();
}

}  // namespace melete

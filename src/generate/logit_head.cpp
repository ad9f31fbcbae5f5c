#include "generate/logit_head.h"

namespace melete {

LogitHead::LogitHead(const at::Tensor& weight, const at::Tensor& bias, WeightStorage storage)
    : weight_(weight), bias_(bias) {
  if (weight.device().is_cpu() && weight.scalar_type() == at::kFloat) packed_.emplace(weight, storage);
}

at::Tensor LogitHead::operator()(const at::Tensor& y) const {
  if (packed_ && takes_few_rows(y)) return packed_->multiply(y, bias_);
  return at::linear(y, weight_, bias_);
}

std::vector<LogitHead> logit_heads(const at::Tensor& weights, WeightStorage storage) {
  std::vector<LogitHead> heads;
  for (const at::Tensor& weight : weights.unbind()) heads.emplace_back(weight, at::Tensor(), storage);
  return heads;
}

}  // namespace melete

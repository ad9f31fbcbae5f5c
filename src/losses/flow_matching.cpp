#include "losses/flow_matching.h"

#include <vector>

namespace melete {

FlowLine flow_line(const at::Tensor& data, const at::Tensor& noise, const at::Tensor& times, double sigma) {
  std::vector<int64_t> shape(static_cast<size_t>(data.dim()), 1);
  shape.front() = times.size(0);
  const at::Tensor t = times.view(shape);
  return {(1 - (1 - sigma) * t) * noise + t * data, data - (1 - sigma) * noise};
}

at::Tensor row_means(const at::Tensor& values, const at::Tensor& counted) {
  if (!counted.defined()) return values.mean(1);
  return values.masked_fill(counted.logical_not(), 0).sum(1) / counted.sum(1).clamp_min(1);
}

}  // namespace melete

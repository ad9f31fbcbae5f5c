#include "nn/attention.h"

#include <limits>

namespace melete {

at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, double scale,
                  const std::optional<at::Tensor>& bias, const std::optional<at::Tensor>& hidden) {
  at::Tensor scores = at::matmul(q * scale, k.transpose(-2, -1)).to(at::kFloat);
  if (bias) scores = scores + *bias;
  if (hidden) scores = scores.masked_fill(*hidden, -std::numeric_limits<float>::max());
  return at::matmul(at::softmax(scores, -1).to(v.scalar_type()), v);
}

}  // namespace melete

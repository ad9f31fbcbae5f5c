#include "nn/norm.h"

namespace melete {

NormImpl::NormImpl(int64_t dim, bool shift) {
  weight = register_parameter("weight", at::ones({dim}));
  if (shift) bias = register_parameter("bias", at::zeros({dim}));
}

at::Tensor NormImpl::forward(const at::Tensor& x) {
  return at::layer_norm(x, weight.sizes(), weight, bias);
}

}  // namespace melete

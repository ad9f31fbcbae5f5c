// Layer normalisation with a gain, and with a shift where the model has one.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include "kernels/layer_norm.h"

namespace melete {

struct NormImpl : torch::nn::Module {
  explicit NormImpl(int64_t dim, bool shift = true);
  // Over the last dimension; of a gated one half as much is left.
  at::Tensor forward(const at::Tensor& x, NormInput input = NormInput::plain);

  at::Tensor weight, bias;  // [dim]; bias is undefined without a shift
};
TORCH_MODULE(Norm);

}  // namespace melete

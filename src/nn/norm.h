// Normalisation over the last dimension: layer norms, and RMS norms, whose gain may come from a condition.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include "kernels/layer_norm.h"

namespace melete {

// Layer normalisation with a gain, and with a shift where the model has one.
struct NormImpl : torch::nn::Module {
  explicit NormImpl(int64_t dim, bool shift = true);
  // Over the last dimension; of a gated one half as much is left.
  at::Tensor forward(const at::Tensor& x, NormInput input = NormInput::plain);

  at::Tensor weight, bias;  // [dim]; bias is undefined without a shift
};
TORCH_MODULE(Norm);

// x / |x| * sqrt(dim) * weight over the last dimension. weight [dim], or [heads, dim] for x [..., heads,
// dim].
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight);

struct RmsNormImpl : torch::nn::Module {
  explicit RmsNormImpl(int64_t dim);
  at::Tensor forward(const at::Tensor& x);

  at::Tensor weight;  // [dim]
};
TORCH_MODULE(RmsNorm);

// The gain and a shift are linear in a condition, for instance the time of a flow; at first they change
// nothing.
struct AdaptiveRmsNormImpl : torch::nn::Module {
  AdaptiveRmsNormImpl(int64_t dim, int64_t condition_dim);
  // x [batch, ..., dim], condition [batch, condition_dim] -> as x
  at::Tensor forward(const at::Tensor& x, const at::Tensor& condition);

  torch::nn::Linear scale{nullptr}, shift{nullptr};
};
TORCH_MODULE(AdaptiveRmsNorm);

}  // namespace melete

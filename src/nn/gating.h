// Small layers that scale a signal by something learned: FiLM, squeeze-excite, gate loop.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include "nn/conv.h"
#include "nn/norm.h"

namespace melete {

// Feature-wise linear modulation: x * gamma + beta, both from a condition.
struct FilmImpl : torch::nn::Module {
  FilmImpl(int64_t dim, int64_t condition_dim);
  at::Tensor forward(const at::Tensor& x, const at::Tensor& condition);  // x [batch, frames, dim]

  torch::nn::Linear condition{nullptr};
};
TORCH_MODULE(Film);

// Squeeze-excite on a running mean. `over_channels` accumulates over the channel axis as audiolm-pytorch
// does; the default accumulates over time, so that the gate is causal.
struct SqueezeExciteImpl : torch::nn::Module {
  SqueezeExciteImpl(int64_t dim, bool over_channels, int64_t reduction = 4, int64_t least = 8);
  at::Tensor forward(const at::Tensor& x, FrameHistory* history = nullptr);  // [batch, dim, time]

  CausalConv1d squeeze{nullptr}, excite{nullptr};

 private:
  bool over_channels_;
};
TORCH_MODULE(SqueezeExcite);

struct GateLoopOptions {
  bool norm = true;          // an RMS norm before
  bool output_norm = false;  // a layer norm after
  bool backwards = false;    // from the last frame to the first
};

// Gate loop: a linear recurrence over time, h[t] = a[t] h[t-1] + kv[t], read out by q[t].
struct GateLoopImpl : torch::nn::Module {
  explicit GateLoopImpl(int64_t dim);
  GateLoopImpl(int64_t dim, const GateLoopOptions& options);
  // [batch, time, dim]; one that runs backwards cannot take a sound chunk by chunk
  at::Tensor forward(const at::Tensor& x, FrameHistory* history = nullptr);

  at::Tensor norm_scale;  // [dim] or undefined
  torch::nn::Linear qkva{nullptr};
  Norm output_norm{nullptr};

 private:
  bool backwards_;
};
TORCH_MODULE(GateLoop);

// h[t] = decay[t] * h[t-1] + input[t] over dimension 1, in log2(time) steps.
at::Tensor linear_scan(at::Tensor decay, at::Tensor input);

}  // namespace melete

// Transformer whose attention sees its own window and the one before it (at most `window` frames back), as in
// the bottleneck of SoundStream. Positions by rotary embedding with xpos decay, or by a learned bias of the
// distance.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/pimpl.h>

#include "nn/feed_forward.h"
#include "nn/position_bias.h"

namespace melete {

struct LocalTransformerConfig {
  int64_t dim = 512;
  int64_t depth = 1;
  int64_t heads = 8;
  int64_t head_dim = 64;
  int64_t window = 128;                // frames
  double xpos_scale_base = 0;          // 0: half the window
  bool dynamic_position_bias = false;  // instead of rotary positions
};

struct LocalAttentionImpl : torch::nn::Module {
  explicit LocalAttentionImpl(const LocalTransformerConfig& config);
  // x [batch, frames, dim] -> the same; bias [heads, window, 2 * window] or undefined
  at::Tensor forward(const at::Tensor& x, const at::Tensor& bias);

  torch::nn::LayerNorm norm{nullptr};
  torch::nn::Linear qkv{nullptr}, gate{nullptr}, output{nullptr};
  at::Tensor query_scale, key_scale;  // [head_dim]

 private:
  void rotate(at::Tensor& q, at::Tensor& k) const;

  LocalTransformerConfig config_;
};
TORCH_MODULE(LocalAttention);

struct LocalTransformerImpl : torch::nn::Module {
  explicit LocalTransformerImpl(const LocalTransformerConfig& config);
  at::Tensor forward(at::Tensor x);  // [batch, frames, dim] -> the same

  BiasNetwork position_bias{nullptr};
  torch::nn::ModuleList attention, feed_forward;

 private:
  int64_t window_;
};
TORCH_MODULE(LocalTransformer);

}  // namespace melete

// The transformer of Voicebox and of its duration predictor: rotary positions, RMS norms that a time may
// steer, learned register tokens before the frames, skip connections as in a U-Net, gate loops.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include "config/schema.h"
#include "nn/gating.h"
#include "nn/norm.h"
#include "nn/rotary.h"

namespace melete {
class Draws;
}

namespace melete::voicebox {

struct TransformerConfig {
  int64_t dim = 1024;
  int64_t depth = 24;
  int64_t heads = 16;
  int64_t head_dim = 64;
  double feed_forward_multiplier = 4;  // the inner width is two thirds of this many times dim
  double attention_dropout = 0;
  double feed_forward_dropout = 0;
  int64_t register_tokens = 16;
  bool query_key_norm = true;
  bool skip_connections = true;  // the second half of the layers sees what the first half saw, last to first
  double skip_scale = 0.7071067811865476;
  bool gate_loops = false;
  int64_t condition_dim =
      0;  // not a setting: of the embedding that steers the norms; 0: they are not steered
};
void describe(Schema& schema, TransformerConfig& config);

// An RMS norm that a condition steers where there is one.
struct SteeredNormImpl : torch::nn::Module {
  SteeredNormImpl(int64_t dim, int64_t condition_dim);
  // x [batch, n, dim], condition [batch, condition_dim] or undefined
  at::Tensor forward(const at::Tensor& x, const at::Tensor& condition);

  RmsNorm plain{nullptr};
  AdaptiveRmsNorm steered{nullptr};
};
TORCH_MODULE(SteeredNorm);

struct AttentionImpl : torch::nn::Module {
  explicit AttentionImpl(const TransformerConfig& config);
  // hidden: bool [batch, n] or undefined, positions that none looks at
  at::Tensor forward(const at::Tensor& x, const Rotation& positions, const at::Tensor& hidden, Draws* draws);

  torch::nn::Linear query_key_value{nullptr}, output{nullptr};
  at::Tensor query_norm, key_norm;  // [heads, head_dim] or undefined

 private:
  TransformerConfig config_;
};
TORCH_MODULE(Attention);

struct FeedForwardImpl : torch::nn::Module {
  explicit FeedForwardImpl(const TransformerConfig& config);
  at::Tensor forward(const at::Tensor& x, Draws* draws);

  torch::nn::Linear input{nullptr}, output{nullptr};

 private:
  double dropout_;
};
TORCH_MODULE(FeedForward);

struct LayerImpl : torch::nn::Module {
  LayerImpl(const TransformerConfig& config, bool has_skip);

  torch::nn::Linear skip{nullptr};
  GateLoop gate_loop{nullptr};
  SteeredNorm attention_norm{nullptr}, feed_forward_norm{nullptr};
  Attention attention{nullptr};
  FeedForward feed_forward{nullptr};
};
TORCH_MODULE(Layer);

struct TransformerImpl : torch::nn::Module {
  explicit TransformerImpl(const TransformerConfig& config);

  // Positions of the register tokens and of so many frames; the same for every pass over them.
  Rotation positions(int64_t frames) const;
  at::Tensor frequencies() const;  // of the rotation: [head_dim / 2]
  // x [batch, n, dim]; valid bool [batch, n] or undefined: what is not padding; condition [batch,
  // condition_dim]. draws: dropout in training, nullptr without. -> [batch, n, dim], normalised
  at::Tensor forward(at::Tensor x, const Rotation& positions, const at::Tensor& valid,
                     const at::Tensor& condition, Draws* draws = nullptr);

  const TransformerConfig& config() const { return config_; }

  at::Tensor register_tokens;  // [register_tokens, dim] or undefined
  torch::nn::ModuleList layers;
  RmsNorm norm{nullptr};

 private:
  TransformerConfig config_;
};
TORCH_MODULE(Transformer);

}  // namespace melete::voicebox

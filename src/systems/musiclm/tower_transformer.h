// The transformer inside both of MuLaN's towers: every position sees every other, queries and keys are unit
// vectors with a learned scale, and what every layer makes can be had.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/pimpl.h>

#include <vector>

#include "nn/feed_forward.h"

namespace melete {
class Schema;
}

namespace melete::musiclm {

struct TowerTransformerConfig {
  int64_t dim = 512;
  int64_t depth = 6;
  int64_t heads = 8;
  int64_t head_dim = 64;
  double feed_forward_multiplier = 4;
  double attention_dropout = 0;
  double feed_forward_dropout = 0;
};
void describe(Schema& schema, TowerTransformerConfig& config);

// What attention sees besides the positions themselves.
struct TowerView {
  std::vector<at::Tensor> biases;  // [n, heads, n], added to the scores: none, one for all rows, or one a row
  at::Tensor hidden;               // bool [batch, n], true: a position that is not there; undefined: all are
};

struct TowerAttentionImpl : torch::nn::Module {
  explicit TowerAttentionImpl(const TowerTransformerConfig& config);
  at::Tensor forward(const at::Tensor& x, const TowerView& view, Draws* draws);  // [batch, n, dim], the same

  Norm norm{nullptr};
  torch::nn::Linear query{nullptr}, key_value{nullptr}, output{nullptr};
  at::Tensor query_scale, key_scale;  // [head_dim]

 private:
  TowerTransformerConfig config_;
};
TORCH_MODULE(TowerAttention);

struct TowerTransformerImpl : torch::nn::Module {
  explicit TowerTransformerImpl(const TowerTransformerConfig& config);
  // x [batch, n, dim] -> what each layer makes of it, the same shape, the last one being the result.
  // draws: for dropout; none: there is none
  std::vector<at::Tensor> forward(at::Tensor x, const TowerView& view, Draws* draws);

  const TowerTransformerConfig& config() const { return config_; }

  torch::nn::ModuleList attention, feed_forward;

 private:
  TowerTransformerConfig config_;
};
TORCH_MODULE(TowerTransformer);

// What a tower makes of its input.
struct TowerOutput {
  at::Tensor embedding;            // [batch, dim], normalised
  std::vector<at::Tensor> layers;  // one a layer: [batch, n, dim]
  at::Tensor hidden;               // bool [batch, n]: positions that are not there; undefined: all are
};

// Mean over the positions that are there: x [batch, n, dim], hidden as above -> [batch, dim]
at::Tensor mean_of_seen(const at::Tensor& x, const at::Tensor& hidden);

}  // namespace melete::musiclm

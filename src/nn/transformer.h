// The transformer that AudioLM's three stages share: one key and one value head for all query heads,
// conditioned by cross attention or by a prefix of keys, with a cache of keys and values for generation.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/pimpl.h>

#include <string>
#include <vector>

#include "nn/feed_forward.h"

namespace melete {

class Draws;
class Schema;

struct TransformerConfig {
  int64_t dim = 512;
  int64_t depth = 6;
  int64_t heads = 8;
  int64_t head_dim = 64;
  std::string condition = "none";  // none, cross, prefix
  double attention_dropout = 0;
  double feed_forward_dropout = 0;
  double gradient_shrink = 0.1;  // share of the gradient that reaches the embeddings
  bool causal = true;            // not a setting: a position sees none after it, and its bias says so
};
void describe(Schema& schema, TransformerConfig& config);

struct Context {
  at::Tensor values;  // [batch, length, dim] or undefined
  at::Tensor mask;    // bool [batch, length], true: seen; undefined: all are
};

// Keys and values of what has been read so far, preallocated.
struct TransformerCache {
  TransformerCache(const TransformerConfig& config, int64_t batch, int64_t capacity);

  std::vector<at::Tensor> own;  // a layer: [batch, capacity, 2 * head_dim]
  std::vector<at::Tensor>
      cross;           // a layer: [batch, 1 + context length, 2 * head_dim], made by the first call
  int64_t length = 0;  // in use, the prefix included
};

struct AttentionImpl : torch::nn::Module {
  // cross: keys come from a normalised context, after one learned key that is always there.
  AttentionImpl(const TransformerConfig& config, bool cross);

  at::Tensor keys_values(const at::Tensor& source);  // [batch, n, dim] -> [batch, n (+ 1), 2 * head_dim]
  // x [batch, queries, dim]; bias and hidden as in AttentionOptions
  at::Tensor forward(const at::Tensor& x, const at::Tensor& keys_values, const at::Tensor& bias,
                     const at::Tensor& hidden, Draws* draws);

  Norm norm{nullptr}, context_norm{nullptr};
  at::Tensor null_key_value;  // [2, 1, head_dim]
  torch::nn::Linear query{nullptr}, key_value{nullptr}, output{nullptr};

 private:
  TransformerConfig config_;
};
TORCH_MODULE(Attention);

struct TransformerImpl : torch::nn::Module {
  explicit TransformerImpl(const TransformerConfig& config);

  // x [batch, n, dim]: all positions, or with a cache those that follow what it holds.
  // bias [n, heads or 1, keys] over the positions of the sequence (for a causal one see causal_bias).
  // seen: bool [batch, keys] or undefined: which positions may be looked at.
  // -> [batch, n, dim], normalised
  at::Tensor forward(at::Tensor x, const at::Tensor& bias, const at::Tensor& seen, const Context& context,
                     Draws* draws = nullptr, TransformerCache* cache = nullptr);

  const TransformerConfig& config() const { return config_; }

  torch::nn::ModuleList attention, cross, feed_forward;
  Norm norm{nullptr};

 private:
  TransformerConfig config_;
};
TORCH_MODULE(Transformer);

}  // namespace melete

// The two transformers of SPEAR-TTS: one that reads, and one that writes with cross attention to what was
// read. Rotary positions, RMS norms before every part, fewer key heads than query heads where asked.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <vector>

#include "nn/attention.h"
#include "nn/norm.h"
#include "nn/rotary.h"

namespace melete {
class Draws;
}

namespace melete::spear_tts {

struct TransformerConfig {
  int64_t dim = 512;
  int64_t depth = 6;
  int64_t heads = 8;
  int64_t key_heads = 8;  // of self-attention; query head h reads key head h % key_heads
  int64_t head_dim = 64;
  double feed_forward_multiplier = 4;  // the inner width is two thirds of this many times dim
  double attention_dropout = 0;
  double feed_forward_dropout = 0;
  bool writes = false;  // causal, and every layer looks at a context, too
};

// What the writer looks at: the reader's output.
struct Context {
  at::Tensor values;  // [batch, length, dim]
  at::Tensor seen;    // bool [batch, length]
};

struct AttentionImpl : torch::nn::Module {
  // cross: over a context, with one learned key and value per head that is always there.
  AttentionImpl(const TransformerConfig& config, bool cross);

  at::Tensor queries(const at::Tensor& normed);  // [batch, n, dim] -> [batch, n, heads, head_dim]
  // [batch, n, dim] -> [batch, n (cross: 1 + n), 2, key_heads, head_dim]: keys, then values
  at::Tensor keys_values(const at::Tensor& source);
  // Settings of attend() but for what may be looked at.
  AttentionOptions options(Draws* draws) const;
  // What an unconditioned query finds: the learned value alone. [heads * head_dim]
  at::Tensor null_value() const;

  RmsNorm norm{nullptr};
  torch::nn::Linear query{nullptr}, key_value{nullptr}, output{nullptr};
  at::Tensor null_key_value;  // [2, heads, head_dim], undefined without cross

 private:
  int64_t heads_, key_heads_, head_dim_;
  double dropout_;
};
TORCH_MODULE(Attention);

struct FeedForwardImpl : torch::nn::Module {
  FeedForwardImpl(int64_t dim, double multiplier, double dropout = 0);
  at::Tensor forward(const at::Tensor& x, Draws* draws = nullptr);

  RmsNorm norm{nullptr};
  torch::nn::Linear input{nullptr}, output{nullptr};

 private:
  double dropout_;
};
TORCH_MODULE(FeedForward);

struct LayerImpl : torch::nn::Module {
  explicit LayerImpl(const TransformerConfig& config);

  Attention attention{nullptr}, cross{nullptr};  // cross is empty in the reader
  FeedForward feed_forward{nullptr};
};
TORCH_MODULE(Layer);

// Keys and values of what the writer has written, preallocated, and those of its context, made once.
//
// Rows beyond those of the contexts have none: they are the unconditioned ones of guidance. A context may
// serve several rows (beams), which then stand one after the other.
struct Cache {
  struct Layer {
    at::Tensor own;    // [rows, capacity, 2, key_heads, head_dim], keys rotated
    at::Tensor cross;  // [contexts, 1 + length, 2, heads, head_dim]
  };
  std::vector<Layer> layers;
  at::Tensor context_hidden;  // bool [contexts, 1 + length]
  at::Tensor
      origins;        // int32 [rows, capacity]: the row where each position of a row lies; undefined: its own
  Rotation rotation;  // of all positions
  int64_t rows_per_context = 1;

  int64_t rows() const { return layers.front().own.size(0); }
  int64_t capacity() const { return layers.front().own.size(1); }
  int64_t contexts() const { return context_hidden.size(0); }
  // Row i becomes what row parents[i] was; the first `length` positions count. int64 [rows or fewer]
  void take_rows(const at::Tensor& parents, int64_t length);
  // The same for as many rows, but nothing moves: origins tell where it lies. For DecoderStep.
  void branch(const at::Tensor& parents, int64_t length);
  void take_contexts(const at::Tensor& kept);  // int64
};

struct LayerRange {
  int64_t from = 0, to = 0;  // from the first layer on, without the last named
};

struct TransformerOutput {
  at::Tensor values;  // [batch, n, dim], normalised
  at::Tensor early;   // the same after an early layer, as it is there; undefined where none was asked for
};

struct TransformerImpl : torch::nn::Module {
  explicit TransformerImpl(const TransformerConfig& config);

  // Whole sequences: x [batch, n, dim], seen bool [batch, n] or undefined. early_layer: counted from 1; 0:
  // none
  TransformerOutput forward(at::Tensor x, const at::Tensor& seen, const Context& context = {},
                            Draws* draws = nullptr, int64_t early_layer = 0);

  // For `capacity` positions of contexts * rows_per_context rows, and as many unconditioned ones if asked.
  Cache make_cache(const Context& context, int64_t capacity, int64_t rows_per_context, bool unconditioned);
  // x [rows, n, dim]: positions first[row], first[row] + 1, ... of each row, through some of the layers. What
  // is before them must be in the cache; they are added to it. -> [rows, n, dim], not normalised
  at::Tensor run(at::Tensor x, const std::vector<int64_t>& first, LayerRange layers, Cache& cache);

  const TransformerConfig& config() const { return config_; }
  LayerImpl& layer(int64_t number) { return layers->at<LayerImpl>(static_cast<size_t>(number)); }

  torch::nn::ModuleList layers;
  RmsNorm norm{nullptr};
  at::Tensor frequencies;  // [head_dim / 2], of the rotation

 private:
  Rotation rotation_of(int64_t positions) const;

  TransformerConfig config_;
};
TORCH_MODULE(Transformer);

}  // namespace melete::spear_tts

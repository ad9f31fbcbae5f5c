// The transformer of MaskGit and Muse (Chang et al. 2022, 2023): sees all tokens of a picture at once, some
// of them masked, with cross attention to text and to the tokens of a low-resolution picture. It predicts
// every token, or, as a critic, how doubtful each one is.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <vector>

#include "config/schema.h"
#include "nn/feed_forward.h"
#include "nn/norm.h"

namespace melete::muse {

struct MaskGitTransformerConfig {
  int64_t tokens = 65536;   // different ones that a picture may have
  int64_t positions = 256;  // of the largest picture
  int64_t dim = 512;
  int64_t depth = 8;
  int64_t heads = 8;
  int64_t head_dim = 64;
  double feed_forward_multiplier = 4;
  int64_t text_dim = 768;       // of the text's features
  bool self_condition = false;  // it also sees its own last embedding
  // Places that tokens of a low-resolution picture may have; 0: only which tokens there are is seen, not
  // where, as in muse-maskgit-pytorch.
  int64_t condition_positions = 0;
  // How often the low-resolution picture's tokens must be doubled along both sides to be as many as the
  // picture's: they are then also added where they belong. 0: they are not, as in muse-maskgit-pytorch.
  int64_t condition_doublings = 0;
  int64_t condition_columns = 0;  // such tokens in a row of the picture; needed for doublings
  // What a critic has otherwise:
  bool mask_token = true;
  int64_t outputs = 0;  // values a position; 0: one a token
};
void describe(Schema& schema, MaskGitTransformerConfig& config);  // without what a critic has otherwise

// Attention with unit queries and keys, a learned gain for each, and one learned key and value that is always
// there.
struct MaskGitAttentionImpl : torch::nn::Module {
  explicit MaskGitAttentionImpl(const MaskGitTransformerConfig& config);

  struct Memory {
    at::Tensor keys, values;  // [batch, 1 + n, heads, head_dim], the learned pair first
  };
  Memory memory(const at::Tensor& source);  // [batch, n, dim]
  // x [batch, positions, dim]; hidden bool [batch, 1 + n] or undefined
  at::Tensor forward(const at::Tensor& x);  // over itself
  at::Tensor forward(const at::Tensor& x, const Memory& memory, const at::Tensor& hidden);
  at::Tensor forward_blind();  // [dim]: what every position gets that sees the learned pair alone

  Norm norm{nullptr};
  torch::nn::Linear query{nullptr}, key_value{nullptr}, output{nullptr};
  at::Tensor null_key_value;        // [2, heads, head_dim]
  at::Tensor query_gain, key_gain;  // [head_dim]

 private:
  at::Tensor attend_to(const at::Tensor& normed, const Memory& memory, const at::Tensor& hidden);

  int64_t heads_, head_dim_;
};
TORCH_MODULE(MaskGitAttention);

// What cross attention reads in every layer. Made once, it serves every step of a generation.
struct MaskGitContext {
  std::vector<MaskGitAttentionImpl::Memory> layers;
  at::Tensor hidden;        // bool [rows that see something, 1 + keys]
  at::Tensor in_place;      // [batch, positions, dim]: the condition where it belongs; undefined: nowhere
  int64_t text_length = 0;  // keys that are text; they stand behind the learned one
  int64_t blind_rows = 0;   // further rows that see nothing but the learned pair

  int64_t rows() const { return hidden.size(0) + blind_rows; }
  MaskGitContext with_text_of(const at::Tensor& kept) const;  // kept: bool [batch]; others see no text
  MaskGitContext without_text() const;
  // The rows of this one, all of which see something, then those of another with the same condition. Shorter
  // texts are padded.
  MaskGitContext followed_by(const MaskGitContext& other) const;
};

struct MaskGitTransformerImpl : torch::nn::Module {
  explicit MaskGitTransformerImpl(const MaskGitTransformerConfig& config);

  // text [batch, length, text_dim], rows of zeros are padding; condition [batch, n] int64 tokens of a
  // low-resolution picture, or undefined.
  MaskGitContext context(const at::Tensor& text, const at::Tensor& condition = {});

  // tokens [batch, positions] int64, mask_token() where hidden; self_condition [batch, positions, dim], what
  // this function gave before, or undefined. A context may have several times as many rows: then the batch is
  // read in each of its parts. -> [rows of the context, positions, dim]; or [places, dim] where only some are
  // wanted, int64 among all positions of all rows: others are spared what the last layer does to each alone.
  at::Tensor embed(const at::Tensor& tokens, const MaskGitContext& context,
                   const at::Tensor& self_condition = {}, const at::Tensor& places = {});
  at::Tensor predict(const at::Tensor& embedded);  // [..., dim] -> [..., outputs]

  int64_t mask_token() const { return config_.tokens; }
  const MaskGitTransformerConfig& config() const { return config_; }

  torch::nn::Embedding token_embedding{nullptr}, position_embedding{nullptr};
  torch::nn::Embedding condition_position_embedding{nullptr};      // none without condition_positions
  torch::nn::ModuleList condition_doublings;                       // to where it belongs
  torch::nn::ModuleList attention, cross_attention, feed_forward;  // a layer each
  Norm norm{nullptr};
  torch::nn::Linear logits{nullptr};
  torch::nn::Linear text_projection{nullptr};  // none where the text is as wide as the transformer
  FeedForward self_condition{nullptr};

 private:
  at::Tensor in_place(const at::Tensor& smaller);  // [batch, n, dim] -> [batch, positions, dim]
  at::Tensor read(size_t layer, const at::Tensor& x, const MaskGitContext& context);

  MaskGitTransformerConfig config_;
};
TORCH_MODULE(MaskGitTransformer);

}  // namespace melete::muse

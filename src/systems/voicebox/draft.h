// A draft of the speech from what is to be said alone, for the flow to begin around (as PriorGrad, Lee et al.
// 2022): it then has only what the text leaves open to find, and the way from text to sound is learned
// without any noise.
//   tokens by frame -> phonemes -> transformer -> each for its frames, with the place inside it ->
//   convolutions -> mean
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include "config/schema.h"
#include "systems/voicebox/transformer.h"

namespace melete::voicebox {

struct DraftConfig {
  int64_t dim = 0;                     // width; 0: no draft, the flow begins at plain noise
  int64_t depth = 4;                   // layers over phonemes
  int64_t heads = 4;                   // of their attention
  int64_t blocks = 4;                  // over frames
  int64_t kernel = 7;                  // of the blocks, odd
  double feed_forward_multiplier = 3;  // of layers and blocks: two thirds of this many times dim are inside
  double dropout = 0;
};
void describe(Schema& schema, DraftConfig& config);

// Frames that belong together: neighbours with the same token. Two equal phonemes in a row are heard as one.
struct Runs {
  at::Tensor tokens;  // int64 [batch, n], padded with -1
  at::Tensor index;   // int64 [batch, frames]: which of them a frame belongs to
  at::Tensor place;   // int64 [batch, frames]: how many frames of the same one are before it
  at::Tensor count;   // int64 [batch, frames]: how many it has
};
// tokens int64 [batch, frames], negative: padding, at the end of a row
Runs runs_of(const at::Tensor& tokens);

// x + output(gated(input(norm(convolution over frames, each channel alone))))
struct DraftBlockImpl : torch::nn::Module {
  explicit DraftBlockImpl(const DraftConfig& config);
  at::Tensor forward(const at::Tensor& x, const at::Tensor& padding, Draws* draws);  // [batch, frames, dim]

  torch::nn::Conv1d convolution{nullptr};
  RmsNorm norm{nullptr};
  torch::nn::Linear input{nullptr}, output{nullptr};

 private:
  double dropout_;
};
TORCH_MODULE(DraftBlock);

// Undefined tensors where a model makes no draft.
struct Drafted {
  at::Tensor hidden;     // [batch, frames, draft dim]
  at::Tensor mean;       // [batch, frames, frame_dim] float32
  at::Tensor deviation;  // [frame_dim]: of what the mean leaves open

  bool defined() const { return mean.defined(); }
  // Noise of deviation 1 becomes noise around the draft, and the inverse; both stay as they are without one.
  // x [rows, frames, frame_dim], of a draft of as many rows or more. No gradient reaches the draft.
  at::Tensor around(const at::Tensor& x) const;
  at::Tensor relative(const at::Tensor& x) const;
};

struct DraftImpl : torch::nn::Module {
  DraftImpl(const DraftConfig& config, int64_t tokens, int64_t frame_dim);
  // tokens int64 [batch, frames], negative: padding
  Drafted forward(const at::Tensor& tokens, Draws* draws = nullptr);

  torch::nn::Embedding embedding{nullptr};
  torch::nn::Conv1d neighbours{nullptr};  // over phonemes, each channel alone
  Transformer transformer{nullptr};
  torch::nn::Linear places{nullptr};  // of the place of a frame inside its phoneme
  torch::nn::ModuleList blocks;
  RmsNorm norm{nullptr};
  torch::nn::Linear mean{nullptr};
  at::Tensor deviation;  // [frame_dim]: logarithm over kDeviationPace

 private:
  DraftConfig config_;
};
TORCH_MODULE(Draft);

// Mean squared error of the draft by row over valid frames, [batch]; `deviation` is fitted to it as well,
// which adds a part that is no error: scalar.
struct DraftLosses {
  at::Tensor rows;       // [batch]
  at::Tensor deviation;  // scalar
};
// frames [batch, frames, frame_dim]; valid bool [batch, frames] or undefined
DraftLosses draft_losses(const Drafted& drafted, const at::Tensor& frames, const at::Tensor& valid);

}  // namespace melete::voicebox

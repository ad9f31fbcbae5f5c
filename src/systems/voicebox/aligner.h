// Which frames belong to which phoneme, learned without timings (Badlani et al. 2021, "One TTS Alignment To
// Rule Them All"): frames and phonemes meet in one space, near ones belong together, in order.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/pimpl.h>

#include "config/schema.h"

namespace melete::voicebox {

struct AlignerConfig {
  int64_t phonemes = 256;  // with embeddings of its own; 0: embeddings are given
  int64_t phoneme_dim = 512;
  int64_t frame_dim = 80;      // mel bands
  int64_t attention_dim = 80;  // of the space in which they meet
  // Phonemes that are heard together, odd. With 3, as published, a phoneme may as well stand for the way from
  // it to the next: then all boundaries can be late by half a phoneme, and nothing in the loss minds. 1: each
  // by itself.
  int64_t phoneme_context = 3;
  double temperature = 0.0005;  // of a squared distance
  double blank = -1;            // score of "no phoneme" in the forward-sum loss
  double prior = 1;  // how firmly a straight diagonal is expected (see diagonal_prior); 0: not at all
  // naturalspeech2-pytorch: the score is plus the distance, so what is nearer is less likely; no prior; the
  // path is searched over probabilities, not their logarithms.
  bool as_upstream = false;
};
void describe(Schema& schema, AlignerConfig& config);

struct AlignerInput {
  at::Tensor frames;           // [batch, frames, frame_dim]
  at::Tensor phonemes;         // int64 [batch, n]; or
  at::Tensor embeddings;       // [batch, n, phoneme_dim]
  at::Tensor frame_lengths;    // int64 [batch]
  at::Tensor phoneme_lengths;  // int64 [batch]
};

struct Alignment {
  at::Tensor scores;     // [batch, frames, n], before the softmax over phonemes; padding is as good as -inf
  at::Tensor soft;       // the softmax
  at::Tensor hard;       // bool [batch, frames, n]: the best path that only goes forward
  at::Tensor durations;  // int64 [batch, n]: frames of each phoneme on it
};

struct AlignerImpl : torch::nn::Module {
  explicit AlignerImpl(const AlignerConfig& config);

  // prior_share: how much of the diagonal prior counts. It helps to find the way; left in place it pulls
  // every boundary towards the diagonal, where a recording that ends in silence has all of them too late.
  Alignment forward(const AlignerInput& input, double prior_share = 0);

  const AlignerConfig& config() const { return config_; }

  torch::nn::Embedding phoneme_embedding{nullptr};
  torch::nn::Conv1d key_input{nullptr}, key_output{nullptr};                             // of phonemes
  torch::nn::Conv1d query_input{nullptr}, query_middle{nullptr}, query_output{nullptr};  // of frames

 private:
  at::Tensor scores(const at::Tensor& frames, const at::Tensor& embeddings);

  AlignerConfig config_;
};
TORCH_MODULE(Aligner);

// The path through scores [batch, frames, n] with the largest sum, from the first phoneme at the first frame
// to the last at the last, one phoneme on or none at every frame. -> durations int64 [batch, n], 0 beyond a
// row's lengths
at::Tensor monotonic_durations(const at::Tensor& scores, const at::Tensor& frame_lengths,
                               const at::Tensor& phoneme_lengths);
// Durations as a path: bool [batch, frames, n]
at::Tensor path_of_durations(const at::Tensor& durations, int64_t frames);

// Logarithms of a beta-binomial distribution over phonemes for every frame, whose mean walks from the first
// phoneme to the last: [batch, frames, n]. firmness: how narrow it is.
at::Tensor diagonal_prior(const at::Tensor& frame_lengths, const at::Tensor& phoneme_lengths, int64_t frames,
                          int64_t n, double firmness);

// Minus the logarithm of the probability of all forward paths together, by CTC: over phonemes' lengths,
// averaged.
at::Tensor forward_sum_loss(const at::Tensor& scores, const at::Tensor& frame_lengths,
                            const at::Tensor& phoneme_lengths, double blank = -1);
// How far the soft alignment is from the hard one: minus the mean logarithm along the path.
at::Tensor binarisation_loss(const Alignment& alignment);
// naturalspeech2-pytorch's: without the minus, by the rows of the batch instead of the frames.
at::Tensor binarisation_loss_as_upstream(const Alignment& alignment);

}  // namespace melete::voicebox

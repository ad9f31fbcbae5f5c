// One family of quantizers: residual stages of one kind, in one or more groups of channels.
//   vq   learned codebooks (SoundStream)
//   lfq  lookup-free: every channel is one bit
//   fsq  finite scalar: every channel is rounded to one of a few levels
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/linear.h>

#include <string>
#include <vector>

#include "config/schema.h"
#include "nn/draws.h"
#include "nn/quantizer_stages.h"

namespace melete {

struct QuantizerConfig {
  std::string kind = "vq";
  int64_t quantizers = 8;
  int64_t groups = 1;
  int64_t codebook_size = 1024;  // of vq and lfq
  int64_t codebook_dim = 0;      // vq: project to this many channels; 0: no projection
  int64_t codebooks = 1;         // codes that one stage gives for one frame, each for its share of channels
  bool separate_codebooks = false;             // vq: each of them from a codebook of its own
  std::vector<int64_t> levels = {8, 5, 5, 5};  // of fsq
  bool dropout = true;                         // in training, use only the first stages of a random batch
  int64_t dropout_keep = 1;                    // index of the first stage that may be the last one used
  int64_t dropout_multiple_of = 1;             // round the number of stages in use up to a multiple
  bool shared_codebook = false;
  bool gradient_of_every_stage = false;  // as audiolm-pytorch: n stages pass the gradient on n times
  double commitment_weight = 1;          // vq
  double decay = 0.95;
  double epsilon = 1e-5;  // smooths the counts of rare codes
  bool kmeans_init = true;
  bool kmeans_in_eval = false;  // see CodebookConfig
  int64_t kmeans_iterations = 10;
  double dead_code_threshold = 2;
  bool cosine = false;
  bool stochastic = false;
  double temperature = 1;
  std::string codebook_update = "average";  // vq: how codes move
  bool cross_entropy_commitment = false;
  bool commitment_gradient_of_moved = false;  // of that, as audiolm-pytorch: by the codes after they moved
  double orthogonal_weight = 0;               // vq: of codes that point in different directions
  bool orthogonal_active_only = false;
  int64_t orthogonal_max_codes = 0;
  bool differentiable_choice = false;  // see CodebookConfig
  bool reinmax = false;
  double synchronous_update = 0;  // vq: the gradient that is passed on grows by this share
  bool affine = false;            // see CodebookConfig
  double affine_vectors_decay = 0.99;
  double affine_codes_decay = 0.9;
  double entropy_weight = 0.1;  // lfq
  double lfq_commitment_weight = 0.25;
  double diversity = 1;
  double entropy_fraction = 1;      // share of the frames that the entropy is measured on
  double entropy_sharpness = 100;   // inverse temperature of the assignment probabilities
  bool factorised_entropy = false;  // see nn/lookup_free.h
  double scale = 1;                 // of the first stage's bits
  // vq, outside of training: the best so many beginnings of a frame's codes are followed to the last stage,
  // not only the nearest code of every stage. Fewer errors in the same bits; codes mean what they meant.
  int64_t search_beams = 1;
  int64_t training_beams = 1;  // the same in training: encoder, codes and decoder learn with what beams find
  std::string lfq_activation = "none";

  int64_t codes_per_frame() const { return groups * quantizers * codebooks; }
};
void describe(Schema& schema, QuantizerConfig& config);

// What every quantizer returns.
struct Quantized {
  at::Tensor vectors;  // [batch, frames, dim]; straight-through: vq and lfq pass its gradient on unchanged
  // [groups, batch, frames, quantizers * codebooks] int64, stage by stage, -1 where a stage was dropped
  at::Tensor codes;
  at::Tensor losses;   // [groups, quantizers] weighted auxiliary loss of every stage; zeros in eval
  int64_t stages = 0;  // in use; the others were dropped
};

// A residual chain over one group of channels.
struct ResidualQuantizerImpl : torch::nn::Module {
  ResidualQuantizerImpl(const QuantizerConfig& config, int64_t dim);

  struct Result {
    // [batch, frames, dim], [batch, frames, quantizers * codebooks], [quantizers]
    at::Tensor vectors, codes, losses;
  };
  // Stages from `used` on are dropped.
  Result forward(const at::Tensor& x, int64_t used, Draws* draws, bool update, const at::Tensor& counted);
  // codes of the first stages, [batch, frames, up to quantizers * codebooks] -> [batch, frames, dim]
  at::Tensor decode(const at::Tensor& codes);

  torch::nn::Linear project_in{nullptr}, project_out{nullptr};
  torch::nn::ModuleList stages;

 private:
  // Codes of the first `used` stages that add up to nearly x. x [batch, frames, dim] -> [batch, frames, used]
  at::Tensor search(const at::Tensor& x, int64_t used, int64_t beams) const;
  bool ready(int64_t used) const;  // none of the first stages waits for the batch that places its codes
  // The sum of all stages with the gradient that x is to have of it.
  at::Tensor passed_on(const at::Tensor& x, const at::Tensor& sum) const;

  bool straight_through_chain_;
  int64_t codebooks_;
  QuantizerConfig config_;
  std::vector<QuantizerStage*> chain_;  // in order of use; a shared stage stands here several times
};
TORCH_MODULE(ResidualQuantizer);

struct QuantizerImpl : torch::nn::Module {
  QuantizerImpl(const QuantizerConfig& config, int64_t dim);

  // x [batch, frames, dim]. `update` lets codebooks follow (in training only); `draws` is needed in training.
  // counted: bool [batch, frames], the frames that losses and codebooks look at; undefined: all.
  Quantized forward(const at::Tensor& x, Draws* draws, bool update = true, const at::Tensor& counted = {});
  // codes [groups, batch, frames, <= quantizers * codebooks] -> [batch, frames, dim]; missing codes and those
  // that are -1 add nothing
  at::Tensor decode(const at::Tensor& codes);

  int64_t codebook_size() const { return codebook_size_; }
  const QuantizerConfig& config() const { return config_; }

  torch::nn::ModuleList groups;

 private:
  int64_t draw_stages_in_use(Draws* draws);

  QuantizerConfig config_;
  int64_t codebook_size_;
};
TORCH_MODULE(Quantizer);

}  // namespace melete

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
#include "nn/codebook.h"
#include "nn/draws.h"

namespace melete {

struct QuantizerConfig {
  std::string kind = "vq";
  int64_t quantizers = 8;
  int64_t groups = 1;
  int64_t codebook_size = 1024;                // of vq and lfq
  int64_t codebook_dim = 0;                    // vq: project to this many channels; 0: no projection
  std::vector<int64_t> levels = {8, 5, 5, 5};  // of fsq
  bool dropout = true;                         // in training, use only the first stages of a random batch
  int64_t dropout_keep = 1;                    // index of the first stage that may be the last one used
  int64_t dropout_multiple_of = 1;             // round the number of stages in use up to a multiple
  bool shared_codebook = false;
  bool gradient_of_every_stage = false;  // as audiolm-pytorch: n stages pass the gradient on n times
  double commitment_weight = 1;          // vq
  double decay = 0.95;
  bool kmeans_init = true;
  bool kmeans_in_eval = false;  // see CodebookConfig
  int64_t kmeans_iterations = 10;
  double dead_code_threshold = 2;
  bool cosine = false;
  bool stochastic = false;
  double temperature = 1;
  double entropy_weight = 0.1;  // lfq
  double lfq_commitment_weight = 0.25;
  double diversity = 1;
  double entropy_fraction = 1;     // share of the frames that the entropy is measured on
  double entropy_sharpness = 100;  // inverse temperature of the assignment probabilities
};
void describe(Schema& schema, QuantizerConfig& config);

// What every quantizer returns.
struct Quantized {
  at::Tensor vectors;  // [batch, frames, dim]; straight-through: vq and lfq pass its gradient on unchanged
  at::Tensor codes;    // [groups, batch, frames, quantizers] int64, -1 where a stage was dropped
  at::Tensor losses;   // [groups, quantizers] weighted auxiliary loss of every stage; zeros in eval
};

// One stage: x [batch, frames, dim] to vectors of the same shape with straight-through gradient.
struct QuantizerStage : torch::nn::Module {
  struct Result {
    at::Tensor vectors, codes, loss;  // codes [batch, frames]; loss undefined when there is none
  };
  virtual Result quantize(const at::Tensor& x, Draws* draws, bool update) = 0;
  virtual at::Tensor vectors(const at::Tensor& codes) = 0;  // codes [...] -> [..., dim]
  // What the first stage sees of the projected input.
  virtual at::Tensor prepare(const at::Tensor& x) { return x; }
};

// A residual chain over one group of channels.
struct ResidualQuantizerImpl : torch::nn::Module {
  ResidualQuantizerImpl(const QuantizerConfig& config, int64_t dim);

  struct Result {
    at::Tensor vectors, codes, losses;  // [batch, frames, dim], [batch, frames, quantizers], [quantizers]
  };
  // Stages from `used` on are dropped.
  Result forward(const at::Tensor& x, int64_t used, Draws* draws, bool update);
  at::Tensor decode(const at::Tensor& codes);  // [batch, frames, <= quantizers] -> [batch, frames, dim]

  torch::nn::Linear project_in{nullptr}, project_out{nullptr};
  torch::nn::ModuleList stages;

 private:
  bool straight_through_chain_;
  std::vector<QuantizerStage*> chain_;  // in order of use; a shared stage stands here several times
};
TORCH_MODULE(ResidualQuantizer);

struct QuantizerImpl : torch::nn::Module {
  QuantizerImpl(const QuantizerConfig& config, int64_t dim);

  // x [batch, frames, dim]. `update` lets codebooks follow (in training only); `draws` is needed in training.
  Quantized forward(const at::Tensor& x, Draws* draws, bool update = true);
  // codes [groups, batch, frames, <= quantizers] -> [batch, frames, dim]; missing or -1 stages add nothing
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

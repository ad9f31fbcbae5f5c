// One stage of a residual quantizer, of each kind.
#pragma once

#include <torch/nn/module.h>

#include <memory>

#include "nn/draws.h"

namespace melete {

struct QuantizerConfig;

// x [batch, frames, dim] to vectors of the same shape with straight-through gradient.
struct QuantizerStage : torch::nn::Module {
  struct Result {
    at::Tensor vectors, codes, loss;  // codes [batch, frames, codebooks]; loss undefined when there is none
  };
  // update: codebooks follow in training. counted: bool [batch, frames], the frames that losses and
  // codebooks look at; undefined: all. chosen: int64 [batch, frames], codes that a search has found, of a
  // stage that has codes(); undefined: the stage chooses.
  virtual Result quantize(const at::Tensor& x, Draws* draws, bool update, const at::Tensor& counted,
                          const at::Tensor& chosen) = 0;
  virtual at::Tensor vectors(const at::Tensor& codes) = 0;  // codes [..., codebooks] -> [..., dim]
  // Of a stage with one codebook: its codes as x is compared with them, [size, dim].
  virtual at::Tensor codes() const { return {}; }
  virtual bool ready() { return true; }  // false: the first batch of training is still to place its codes
  // What the first stage sees of the projected input.
  virtual at::Tensor prepare(const at::Tensor& x) { return x; }
};

// Channels that a stage quantizes when the quantizer is given `dim`; where they differ it projects.
int64_t stage_dim(const QuantizerConfig& config, int64_t dim);
std::shared_ptr<QuantizerStage> make_stage(const QuantizerConfig& config, int64_t stage_dim, int64_t index);

// Value of `to`, gradient of `from`.
at::Tensor straight_through(const at::Tensor& from, const at::Tensor& to);

}  // namespace melete

// Vocos (Siuzdak 2023): a vocoder that stays at the rate of its frames. ConvNeXt blocks predict the magnitude
// and phase of a short-time spectrum, whose inverse is the sound.
//   frames [batch, frames, input_dim] -> blocks -> spectrum -> audio [batch, samples]
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <string>

#include "config/schema.h"

namespace melete {

struct VocosConfig {
  int64_t input_dim = 100;  // of a frame
  int64_t dim = 512;
  int64_t inner_dim = 1536;  // inside a block
  int64_t layers = 8;
  int64_t bandwidths = 0;  // conditions that the norms have a gain and a shift of their own for; 0: none
  int64_t n_fft = 1024;
  int64_t hop = 256;             // samples between frames
  std::string edges = "centre";  // centre: frames - 1 hops of sound; same: as many hops as frames
  int64_t codebook_rows = 0;     // of all codebooks together, where its frames are sums of their vectors
};
void describe(Schema& schema, VocosConfig& config);

// Layer norm whose gain and shift are rows of tables, one for each bandwidth (one row where there are none).
struct VocosNormImpl : torch::nn::Module {
  VocosNormImpl(int64_t dim, int64_t bandwidths);
  at::Tensor forward(const at::Tensor& x, int64_t bandwidth);

  at::Tensor weight, bias;  // [rows, dim]
};
TORCH_MODULE(VocosNorm);

// x + scale * contract(gelu(expand(norm(depthwise(x)))))
struct VocosBlockImpl : torch::nn::Module {
  explicit VocosBlockImpl(const VocosConfig& config);
  at::Tensor forward(const at::Tensor& x, int64_t bandwidth);  // [batch, dim, frames]

  torch::nn::Conv1d depthwise{nullptr};
  VocosNorm norm{nullptr};
  torch::nn::Linear expand{nullptr}, contract{nullptr};
  at::Tensor scale;  // [dim]
};
TORCH_MODULE(VocosBlock);

struct VocosImpl : torch::nn::Module {
  explicit VocosImpl(const VocosConfig& config);

  // frames [batch, frames, input_dim] -> audio [batch, samples]; bandwidth: which row of the norms' tables
  at::Tensor forward(const at::Tensor& frames, int64_t bandwidth = 0);
  // codes [batch, frames, quantizers] of codebooks that have `codebook_size` rows each -> frames
  at::Tensor frames_of_codes(const at::Tensor& codes, int64_t codebook_size) const;

  const VocosConfig& config() const { return config_; }

  torch::nn::Conv1d input{nullptr};
  VocosNorm norm{nullptr};
  torch::nn::ModuleList blocks;
  VocosNorm final_norm{nullptr};
  torch::nn::Linear output{nullptr};
  at::Tensor codebooks;  // [codebook_rows, input_dim] or undefined

 private:
  VocosConfig config_;
};
TORCH_MODULE(Vocos);

}  // namespace melete

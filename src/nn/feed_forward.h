// The gated feed-forward layer that every transformer here has, and the small product behind it.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include "nn/norm.h"

namespace melete {

class Draws;

torch::nn::Linear linear(int64_t in, int64_t out, bool bias);

// x [..., in] -> [..., out]. Without gradients and with few rows (one token of a generation) the weights are
// read once by a kernel of our own; else it is LibTorch's matrix product.
at::Tensor project(const at::Tensor& x, const torch::nn::Linear& layer);

// Zeroes a share of the values and scales up the rest; x itself when the rate is 0 or there are no draws.
at::Tensor dropout(const at::Tensor& x, double rate, Draws* draws);

struct FeedForwardConfig {
  int64_t dim = 512;
  double multiplier = 4;    // the inner width is two thirds of this many times dim
  bool shift = true;        // of the norms
  bool inner_norm = false;  // a second norm before the last product
  double dropout = 0;
};

struct FeedForwardImpl : torch::nn::Module {
  explicit FeedForwardImpl(const FeedForwardConfig& config);
  at::Tensor forward(const at::Tensor& x, Draws* draws = nullptr);

  Norm norm{nullptr}, inner_norm{nullptr};
  torch::nn::Linear input{nullptr}, output{nullptr};

 private:
  double dropout_;
};
TORCH_MODULE(FeedForward);

}  // namespace melete

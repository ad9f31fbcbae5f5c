// Layers over pictures that autoencoder and discriminator share. Feature maps are [batch, channels, height,
// width] kept channels-last in memory, the layout in which oneDNN is fastest.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/pimpl.h>

namespace melete::muse {

at::Tensor channels_last(const at::Tensor& x);  // a no-op when it is so already
// Leaky ReLU, in place; its slope is 0.1 everywhere in this system.
at::Tensor activated(at::Tensor x);

torch::nn::Conv2d convolution(int64_t in, int64_t out, int64_t kernel, int64_t stride = 1,
                              int64_t padding = 0);

// Halves both sides: 4 x 4, stride 2.
torch::nn::Conv2d halving(int64_t in, int64_t out);

// Doubles both sides: the transposed convolution of `halving`, computed as one plain 2 x 2 convolution whose
// output channels are the four pixels that each position becomes (LibTorch's bf16 transposed convolution is
// wrong, its fp32 one slow).
struct DoublingImpl : torch::nn::Module {
  DoublingImpl(int64_t in, int64_t out);
  at::Tensor forward(const at::Tensor& x);  // [batch, in, h, w] -> [batch, out, 2 h, 2 w]

  at::Tensor weight, bias;  // weight [in, out, 4, 4], as in LibTorch
};
TORCH_MODULE(Doubling);

// x + conv1x1(act(norm(conv3x3(act(norm(conv3x3(x))))))
struct ResidualBlockImpl : torch::nn::Module {
  ResidualBlockImpl(int64_t channels, int64_t groups);
  at::Tensor forward(const at::Tensor& x);

  torch::nn::Conv2d first{nullptr}, second{nullptr}, last{nullptr};
  torch::nn::GroupNorm first_norm{nullptr}, second_norm{nullptr};
};
TORCH_MODULE(ResidualBlock);

// The same with gated linear units, whose norms come after them.
struct GatedBlockImpl : torch::nn::Module {
  GatedBlockImpl(int64_t channels, int64_t groups);
  at::Tensor forward(const at::Tensor& x);

  torch::nn::Conv2d first{nullptr}, second{nullptr}, last{nullptr};
  torch::nn::GroupNorm first_norm{nullptr}, second_norm{nullptr};
};
TORCH_MODULE(GatedBlock);

}  // namespace melete::muse

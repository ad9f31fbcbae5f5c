// Discriminator of SoundStream on the complex STFT.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/pimpl.h>

#include "config/schema.h"
#include "nn/discriminator.h"
#include "nn/spectrum.h"

namespace melete {

struct StftDiscriminatorConfig {
  int64_t channels = 32;
  std::vector<int64_t> channel_multiples = {1, 2, 4, 4, 8, 8};
  std::vector<int64_t> frequency_strides = {1, 2, 1, 2, 1, 2};
  std::vector<int64_t> time_strides = {2, 2, 2, 2, 2, 2};
  int64_t n_fft = 1024;
  int64_t hop = 256;
  int64_t window = 1024;
  std::string window_shape = "hann";
  bool normalized = false;       // divide the transform by sqrt(n_fft)
  bool magnitude_logits = true;  // judge |z|; otherwise real and imaginary part each
};
void describe(Schema& schema, StftDiscriminatorConfig& config);

struct ComplexConv2dImpl : torch::nn::Module {
  ComplexConv2dImpl(int64_t in, int64_t out, std::array<int64_t, 2> kernel,
                    std::array<int64_t, 2> stride = {1, 1}, std::array<int64_t, 2> padding = {0, 0});
  ComplexPair forward(const ComplexPair& x);  // [batch, in, frequency, time] -> [batch, out, ...]

  at::Tensor weight;  // [out, in, height, width, (re, im)]
  at::Tensor bias;    // [out, (re, im)]

 private:
  std::array<int64_t, 2> stride_, padding_;
};
TORCH_MODULE(ComplexConv2d);

// x + conv(mod_relu(conv(x))), then a strided convolution
struct StftUnitImpl : torch::nn::Module {
  StftUnitImpl(int64_t in, int64_t out, std::array<int64_t, 2> stride);
  ComplexPair forward(const ComplexPair& x);

  ComplexConv2d first{nullptr}, second{nullptr}, down{nullptr};
  at::Tensor threshold;  // of the ModReLU, scalar
};
TORCH_MODULE(StftUnit);

struct StftDiscriminatorImpl : torch::nn::Module {
  explicit StftDiscriminatorImpl(const StftDiscriminatorConfig& config);
  Judgement forward(const at::Tensor& wave);  // [batch, samples]

  ComplexConv2d input{nullptr}, output{nullptr};
  torch::nn::ModuleList units;

 private:
  StftDiscriminatorConfig config_;
};
TORCH_MODULE(StftDiscriminator);

}  // namespace melete

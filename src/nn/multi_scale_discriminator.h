// Multi-scale waveform discriminator (MelGAN): grouped strided convolutions over the raw wave.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/pimpl.h>

#include "config/schema.h"
#include "nn/discriminator.h"

namespace melete {

struct MultiScaleDiscriminatorConfig {
  int64_t channels = 16;
  int64_t layers = 4;
  std::vector<int64_t> groups = {4, 16, 64, 256};
  int64_t max_channels = 1024;
};
void describe(Schema& schema, MultiScaleDiscriminatorConfig& config);

struct MultiScaleDiscriminatorImpl : torch::nn::Module {
  explicit MultiScaleDiscriminatorImpl(const MultiScaleDiscriminatorConfig& config,
                                       int64_t input_channels = 1);
  Judgement forward(
      const at::Tensor& wave);  // [batch, input_channels, samples] -> logits [batch, 1, samples / 4^layers]

  torch::nn::Conv1d input{nullptr}, hidden{nullptr}, output{nullptr};
  torch::nn::ModuleList layers;
};
TORCH_MODULE(MultiScaleDiscriminator);

}  // namespace melete

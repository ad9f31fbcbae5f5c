// Tells pictures from reconstructions, one judgement a patch (PatchGAN, Isola et al. 2017).
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/pimpl.h>

#include <vector>

#include "config/schema.h"

namespace melete::muse {

struct PictureDiscriminatorConfig {
  std::vector<int64_t> dims = {};  // before and after every halving layer; empty: see discriminator_dims
  int64_t layers = 4;              // of those, where dims is empty
  int64_t groups = 16;             // of the group normalisations
  int64_t first_kernel = 5;
};
void describe(Schema& schema, PictureDiscriminatorConfig& config);

// `dims` as it is given, or dim, dim, 2 dim, 4 dim, ... for an autoencoder of that dim.
std::vector<int64_t> discriminator_dims(const PictureDiscriminatorConfig& config, int64_t dim);

struct PictureDiscriminatorImpl : torch::nn::Module {
  PictureDiscriminatorImpl(const PictureDiscriminatorConfig& config, int64_t channels, int64_t dim);
  // pictures [batch, channels, height, width] -> logits [batch, 1, rows, columns], higher for real ones
  at::Tensor forward(const at::Tensor& pictures);

  torch::nn::Conv2d input{nullptr}, hidden{nullptr}, output{nullptr};
  torch::nn::ModuleList layers;

 private:
  int64_t smallest_side_;
};
TORCH_MODULE(PictureDiscriminator);

}  // namespace melete::muse

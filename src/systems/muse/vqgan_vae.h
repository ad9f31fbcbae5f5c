// The VQ-GAN autoencoder of Muse: pictures <-> a grid of tokens (Esser et al. 2021; lookup-free quantizer by
// Yu et al. 2023).
//   picture -> encoder -> quantizer -> decoder -> picture
// Pictures are [batch, channels, height, width] float32 in [0, 1]; every layer halves both sides.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/pimpl.h>

#include <vector>

#include "config/schema.h"
#include "nn/quantizer.h"

namespace melete::muse {

struct VqganVaeConfig {
  int64_t channels = 3;  // of a picture: 3 is colour, 1 grey
  int64_t dim = 256;     // channels of the first feature map
  int64_t layers = 4;
  std::vector<int64_t> multiples = {};         // of dim, a layer each; empty: 1, 2, 4, 8, ...
  std::vector<int64_t> residual_blocks = {1};  // a layer each; a single number: of the deepest layer only
  int64_t groups = 16;                         // of the group normalisations
  int64_t first_kernel = 5;
  QuantizerConfig quantizer;

  VqganVaeConfig();
  std::vector<int64_t> layer_dims() const;    // [layers]
  std::vector<int64_t> layer_blocks() const;  // [layers]
};
void describe(Schema& schema, VqganVaeConfig& config);

struct VqganVaeImpl : torch::nn::Module {
  explicit VqganVaeImpl(const VqganVaeConfig& config);

  struct Output {
    at::Tensor pictures;   // the reconstruction
    at::Tensor encoded;    // [batch, encoded_dim, rows, columns] what the quantizer saw
    at::Tensor features;   // the same shape: what it made of it
    at::Tensor ids;        // [batch, rows, columns] int64, or [..., codebooks] where there are several
    at::Tensor auxiliary;  // scalar: commitment and entropy losses, weighted; zero in eval
  };
  // update: codebooks follow in training.
  Output forward(const at::Tensor& pictures, Draws* draws = nullptr, bool update = true);

  at::Tensor encode(const at::Tensor& pictures);  // -> [batch, encoded_dim, rows, columns]
  at::Tensor decode(const at::Tensor& features);  // [batch, encoded_dim, rows, columns] -> pictures

  // Without gradient, in eval mode.
  at::Tensor tokenize(const at::Tensor& pictures);  // -> ids as above
  at::Tensor decode_ids(const at::Tensor& ids);     // ids as above -> pictures

  at::Tensor vectors_of(const at::Tensor& ids);  // ids as above -> [batch, encoded_dim, rows, columns]

  int64_t encoded_dim() const;
  int64_t pixels_per_token() const { return int64_t{1} << config_.layers; }  // along one side
  int64_t codebook_size() const { return quantizer->codebook_size(); }
  const VqganVaeConfig& config() const { return config_; }
  at::Tensor last_weight() { return output->weight; }  // what the adversarial loss is weighed by

  torch::nn::Conv2d input{nullptr}, output{nullptr};
  torch::nn::ModuleList encoder, decoder;  // decoder: deepest layer first
  Quantizer quantizer{nullptr};

 private:
  void check(const at::Tensor& pictures) const;
  at::Tensor grid_of(const at::Tensor& codes, int64_t rows, int64_t columns) const;

  VqganVaeConfig config_;
};
TORCH_MODULE(VqganVae);

}  // namespace melete::muse

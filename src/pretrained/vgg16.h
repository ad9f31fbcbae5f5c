// VGG-16 (Simonyan and Zisserman 2014) up to its last hidden layer, as a measure of how alike two pictures
// look. Its weights are never trained here.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <string>
#include <vector>

#include "io/tensors.h"

namespace melete {

class Draws;

struct Vgg16Config {
  // Channels of the 3 x 3 convolutions of every block; a block ends with a halving of both sides.
  std::vector<std::vector<int64_t>> blocks = {
      {64, 64}, {128, 128}, {256, 256, 256}, {512, 512, 512}, {512, 512, 512}};
  int64_t hidden = 4096;
  int64_t features = 4096;
};

struct Vgg16Impl : torch::nn::Module {
  explicit Vgg16Impl(const Vgg16Config& config);

  // pictures [batch, 3, height, width] in [0, 1] -> [batch, features]
  at::Tensor forward(const at::Tensor& pictures);
  // As muse-maskgit-pytorch feeds it: pixels without ImageNet's mean and spread; with draws its dropout is
  // on.
  at::Tensor forward_raw(const at::Tensor& pictures, Draws* draws);

  torch::nn::ModuleList convolutions;  // of all blocks in a row
  torch::nn::Linear hidden{nullptr}, output{nullptr};

 private:
  Vgg16Config config_;
  at::Tensor mean_, spread_;  // of ImageNet's pixels, [1, 3, 1, 1]
};
TORCH_MODULE(Vgg16);

namespace torchvision {

// By the shapes of torchvision's vgg16().state_dict(); any model of that family will do.
Vgg16Config vgg16_config(const TensorMap& state_dict);
// In eval mode; no weight wants a gradient. The classifier's last layer is not used and may be missing.
Vgg16 load_vgg16(const TensorMap& state_dict);

}  // namespace torchvision

}  // namespace melete

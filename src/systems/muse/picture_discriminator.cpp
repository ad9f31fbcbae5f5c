#include "systems/muse/picture_discriminator.h"

#include <torch/nn/modules/normalization.h>

#include "core/autocast.h"
#include "core/base/error.h"
#include "systems/muse/picture_layers.h"

namespace melete::muse {

namespace {

constexpr int64_t kPatch = 4;  // side of the last convolution

struct DiscriminatorLayer : torch::nn::Module {
  DiscriminatorLayer(int64_t in, int64_t out, int64_t groups) {
    down = register_module("down", halving(in, out));
    norm = register_module("norm", torch::nn::GroupNorm(torch::nn::GroupNormOptions(groups, out)));
  }
  at::Tensor forward(const at::Tensor& x) { return activated(norm(in_float(down(x)))); }

  torch::nn::Conv2d down{nullptr};
  torch::nn::GroupNorm norm{nullptr};
};

}  // namespace

void describe(Schema& s, PictureDiscriminatorConfig& c) {
  s.option("dims", c.dims, "channels before and after every layer; empty: the autoencoder's, doubling")
      .at_least(1);
  s.option("layers", c.layers, "layers that halve the sides, where dims is empty").at_least(0).at_most(10);
  s.option("groups", c.groups, "of the group normalisations").at_least(1);
  s.option("first_kernel", c.first_kernel, "side of the first convolution's kernel").at_least(1);
}

std::vector<int64_t> discriminator_dims(const PictureDiscriminatorConfig& config, int64_t dim) {
  if (!config.dims.empty()) return config.dims;
  std::vector<int64_t> dims{dim};
  for (int64_t i = 0; i < config.layers; ++i) dims.push_back(dim << i);
  return dims;
}

PictureDiscriminatorImpl::PictureDiscriminatorImpl(const PictureDiscriminatorConfig& config, int64_t channels,
                                                   int64_t dim) {
  const auto dims = discriminator_dims(config, dim);
  input = register_module(
      "input", convolution(channels, dims.front(), config.first_kernel, 1, config.first_kernel / 2));
  for (size_t i = 0; i + 1 < dims.size(); ++i) {
    require(dims[i + 1] % config.groups == 0, "[discriminator] {} channels do not split into {} groups",
            dims[i + 1], config.groups);
    layers->push_back(std::make_shared<DiscriminatorLayer>(dims[i], dims[i + 1], config.groups));
  }
  register_module("layers", layers);
  hidden = register_module("hidden", convolution(dims.back(), dims.back(), 1));
  output = register_module("output", convolution(dims.back(), 1, kPatch));
  smallest_side_ = kPatch << (dims.size() - 1);
}

at::Tensor PictureDiscriminatorImpl::forward(const at::Tensor& pictures) {
  require(
      pictures.size(2) >= smallest_side_ && pictures.size(3) >= smallest_side_,
      "[discriminator] {} layers need pictures of at least {} pixels a side, got {} x {}; try fewer layers",
      layers->size(), smallest_side_, pictures.size(2), pictures.size(3));
  at::Tensor x = activated(input(channels_last(pictures)));
  for (const auto& layer : *layers) x = layer->as<DiscriminatorLayer>()->forward(x);
  return output(activated(hidden(x)));
}

}  // namespace melete::muse

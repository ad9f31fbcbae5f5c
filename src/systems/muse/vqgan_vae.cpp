#include "systems/muse/vqgan_vae.h"

#include <fmt/ranges.h>

#include "core/base/error.h"
#include "systems/muse/picture_layers.h"

namespace melete::muse {

namespace {

struct EncoderLayer : torch::nn::Module {
  EncoderLayer(int64_t in, int64_t out, int64_t block_count, int64_t groups) {
    down = register_module("down", halving(in, out));
    for (int64_t i = 0; i < block_count; ++i) blocks->push_back(ResidualBlock(out, groups));
    register_module("blocks", blocks);
  }
  at::Tensor forward(at::Tensor x) {
    x = activated(down(x));
    for (const auto& block : *blocks) x = block->as<ResidualBlockImpl>()->forward(x);
    return x;
  }

  torch::nn::Conv2d down{nullptr};
  torch::nn::ModuleList blocks;
};

struct DecoderLayer : torch::nn::Module {
  DecoderLayer(int64_t in, int64_t out, int64_t block_count, int64_t groups) {
    for (int64_t i = 0; i < block_count; ++i) blocks->push_back(GatedBlock(in, groups));
    register_module("blocks", blocks);
    up = register_module("up", Doubling(in, out));
  }
  at::Tensor forward(at::Tensor x) {
    for (const auto& block : *blocks) x = block->as<GatedBlockImpl>()->forward(x);
    return activated(up(x));
  }

  torch::nn::ModuleList blocks;
  Doubling up{nullptr};
};

}  // namespace

VqganVaeConfig::VqganVaeConfig() {
  quantizer.kind = "lfq";
  quantizer.quantizers = 1;
  quantizer.codebook_size = 65536;
  quantizer.dropout = false;
  quantizer.gradient_of_every_stage = true;  // there is but one, and its gradient is its own
  quantizer.diversity = 4;
  quantizer.factorised_entropy = true;
  quantizer.decay = 0.8;
  quantizer.cosine = true;
}

std::vector<int64_t> VqganVaeConfig::layer_dims() const {
  require(multiples.empty() || static_cast<int64_t>(multiples.size()) == layers,
          "[vae] expected {} multiples, one a layer, got {}", layers, multiples.size());
  std::vector<int64_t> dims;
  for (int64_t i = 0; i < layers; ++i)
    dims.push_back(dim * (multiples.empty() ? int64_t{1} << i : multiples[static_cast<size_t>(i)]));
  return dims;
}

std::vector<int64_t> VqganVaeConfig::layer_blocks() const {
  std::vector<int64_t> blocks = residual_blocks;
  if (blocks.size() == 1) blocks.insert(blocks.begin(), static_cast<size_t>(layers) - 1, 0);
  require(static_cast<int64_t>(blocks.size()) == layers,
          "[vae] expected residual_blocks of all {} layers, or of the deepest alone, got {}", layers,
          residual_blocks.size());
  return blocks;
}

void describe(Schema& s, VqganVaeConfig& c) {
  s.option("channels", c.channels, "of a picture: 3 is colour, 1 grey").at_least(1);
  s.option("dim", c.dim, "channels of the first feature map").at_least(1);
  s.option("layers", c.layers, "each halves the sides of a picture").at_least(1).at_most(10);
  s.option("multiples", c.multiples, "of dim, one a layer; empty: 1, 2, 4, ...").at_least(1);
  s.option("residual_blocks", c.residual_blocks, "one number a layer, or that of the deepest layer alone")
      .at_least(0);
  s.option("groups", c.groups, "of the group normalisations").at_least(1);
  s.option("first_kernel", c.first_kernel, "side of the first convolution's kernel").at_least(1);
  s.section("quantizer", c.quantizer, "features into tokens");
}

VqganVaeImpl::VqganVaeImpl(const VqganVaeConfig& config) : config_(config) {
  require(config.dim % config.groups == 0, "[vae] dim {} does not split into {} groups", config.dim,
          config.groups);
  require(config.first_kernel % 2 == 1, "[vae] first_kernel must be odd, got {}", config.first_kernel);
  require(config.quantizer.quantizers == 1 && config.quantizer.groups == 1,
          "[vae.quantizer] a position of the grid has one stage and one group, got {} and {}; try codebooks",
          config.quantizer.quantizers, config.quantizer.groups);
  const auto dims = config.layer_dims(), blocks = config.layer_blocks();
  input = register_module(
      "input", convolution(config.channels, config.dim, config.first_kernel, 1, config.first_kernel / 2));
  int64_t before = config.dim;
  std::vector<std::shared_ptr<DecoderLayer>> ups;
  for (size_t i = 0; i < dims.size(); ++i) {
    encoder->push_back(std::make_shared<EncoderLayer>(before, dims[i], blocks[i], config.groups));
    ups.push_back(std::make_shared<DecoderLayer>(dims[i], before, blocks[i], config.groups));
    before = dims[i];
  }
  for (auto up = ups.rbegin(); up != ups.rend(); ++up) decoder->push_back(*up);
  register_module("encoder", encoder);
  quantizer = register_module("quantizer", Quantizer(config.quantizer, before));
  register_module("decoder", decoder);
  output = register_module("output", convolution(config.dim, config.channels, 1));
}

int64_t VqganVaeImpl::encoded_dim() const {
  return config_.layer_dims().back();
}

void VqganVaeImpl::check(const at::Tensor& pictures) const {
  require(pictures.dim() == 4 && pictures.size(1) == config_.channels,
          "[vae] expected pictures [batch, {}, height, width], got [{}]", config_.channels,
          fmt::join(pictures.sizes(), ", "));
  const int64_t step = pixels_per_token();
  require(pictures.size(2) % step == 0 && pictures.size(3) % step == 0,
          "[vae] {} layers need sides that are multiples of {}, got {} x {}", config_.layers, step,
          pictures.size(2), pictures.size(3));
}

at::Tensor VqganVaeImpl::encode(const at::Tensor& pictures) {
  check(pictures);
  at::Tensor x = input(channels_last(pictures));
  for (const auto& layer : *encoder) x = layer->as<EncoderLayer>()->forward(x);
  return x;
}

at::Tensor VqganVaeImpl::decode(const at::Tensor& features) {
  at::Tensor x = channels_last(features);
  for (const auto& layer : *decoder) x = layer->as<DecoderLayer>()->forward(x);
  return output(x);
}

// codes [1, batch, rows * columns, codebooks] -> ids
at::Tensor VqganVaeImpl::grid_of(const at::Tensor& codes, int64_t rows, int64_t columns) const {
  const at::Tensor grid = codes[0].view({codes.size(1), rows, columns, codes.size(3)});
  return config_.quantizer.codebooks == 1 ? grid.squeeze(-1) : grid;
}

VqganVaeImpl::Output VqganVaeImpl::forward(const at::Tensor& pictures, Draws* draws, bool update) {
  Output result;
  result.encoded = encode(pictures);
  const int64_t rows = result.encoded.size(2), columns = result.encoded.size(3);
  const at::Tensor frames =
      result.encoded.permute({0, 2, 3, 1}).flatten(1, 2);  // [batch, rows * columns, dim]
  const Quantized quantized = quantizer->forward(frames, draws, update);
  result.features = quantized.vectors.unflatten(1, {rows, columns}).permute({0, 3, 1, 2});
  result.ids = grid_of(quantized.codes, rows, columns);
  result.auxiliary = quantized.losses.sum();
  result.pictures = decode(result.features);
  return result;
}

at::Tensor VqganVaeImpl::tokenize(const at::Tensor& pictures) {
  const at::NoGradGuard no_grad;
  const bool was_training = is_training();
  eval();
  const at::Tensor encoded = encode(pictures);
  const at::Tensor codes =
      quantizer->forward(encoded.permute({0, 2, 3, 1}).flatten(1, 2), nullptr, false).codes;
  train(was_training);
  return grid_of(codes, encoded.size(2), encoded.size(3));
}

at::Tensor VqganVaeImpl::vectors_of(const at::Tensor& ids) {
  const bool several = config_.quantizer.codebooks > 1;
  require(ids.dim() == (several ? 4 : 3), "[vae] expected ids [batch, rows, columns{}], got [{}]",
          several ? ", codebooks" : "", fmt::join(ids.sizes(), ", "));
  const at::Tensor codes = (several ? ids : ids.unsqueeze(-1)).flatten(1, 2).unsqueeze(0);
  return quantizer->decode(codes).unflatten(1, {ids.size(1), ids.size(2)}).permute({0, 3, 1, 2});
}

at::Tensor VqganVaeImpl::decode_ids(const at::Tensor& ids) {
  const at::NoGradGuard no_grad;
  const bool was_training = is_training();
  eval();
  const at::Tensor pictures = decode(vectors_of(ids));
  train(was_training);
  return pictures;
}

}  // namespace melete::muse

// What MusicLM's stages are told about a piece: its joint embedding, quantized, and for each stage a table
// that gives a vector for every code.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <map>
#include <string>
#include <vector>

#include "nn/quantizer.h"

namespace melete::musiclm {

struct EmbedQuantizerConfig {
  int64_t dim = 128;  // of the joint space
  int64_t quantizers = 8;
  int64_t codebook_size = 1024;
  double decay = 0.9;  // of the moving averages behind the codebooks
  std::vector<std::string> stages = {"semantic", "coarse", "fine"};
  std::vector<int64_t> stage_dims = {512, 512, 512};  // widths of what conditions each
  bool kmeans_in_eval = false;  // musiclm-pytorch's way: fresh codebooks are placed outside training, too
};
void describe(Schema& schema, EmbedQuantizerConfig& config);

struct EmbedQuantizerImpl : torch::nn::Module {
  explicit EmbedQuantizerImpl(const EmbedQuantizerConfig& config);

  // latents [batch, dim] -> [batch, quantizers] int64. In training the codebooks follow them, which takes
  // draws; no gradient comes back.
  at::Tensor codes(const at::Tensor& latents, Draws* draws = nullptr);
  at::Tensor vectors(const at::Tensor& codes);  // [batch, quantizers] -> [batch, dim]
  // codes [batch, quantizers] -> [batch, quantizers, width of the stage], with gradient to its table
  at::Tensor condition(const at::Tensor& codes, const std::string& stage) const;

  const EmbedQuantizerConfig& config() const { return config_; }
  const at::Tensor& table(const std::string& stage) const;  // [quantizers, codebook_size, width of the stage]

  Quantizer quantizer{nullptr};

 private:
  EmbedQuantizerConfig config_;
  std::map<std::string, at::Tensor> tables_;
};
TORCH_MODULE(EmbedQuantizer);

}  // namespace melete::musiclm

// The encoder of T5 (Raffel et al. 2020, both the first version and 1.1): text to vectors, with public
// weights.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/pimpl.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/schema.h"
#include "data/text_tokenizer.h"
#include "roles/text_encoder.h"

namespace melete {

struct T5Config {
  int64_t vocabulary = 32128;
  int64_t dim = 512;
  int64_t head_dim = 64;
  int64_t feed_forward_dim = 2048;
  int64_t layers = 6;
  int64_t heads = 8;
  int64_t position_buckets = 32;
  int64_t position_max_distance = 128;  // tokens; all that are further apart share a bucket
  double norm_epsilon = 1e-6;
  std::string activation = "relu";
  bool gated = false;        // 1.1: the activation gates a second projection
  int64_t max_tokens = 256;  // longer texts are cut
};
void describe(Schema& schema, T5Config& config);

struct T5BlockImpl : torch::nn::Module {
  explicit T5BlockImpl(const T5Config& config);
  // x [batch, tokens, dim], bias [tokens, heads, tokens], hidden bool [batch, tokens] or undefined
  at::Tensor forward(const at::Tensor& x, const at::Tensor& bias, const at::Tensor& hidden);

  at::Tensor attention_norm, qkv, attention_output;  // qkv [3 * heads * head_dim, dim]
  at::Tensor feed_norm, feed_input, feed_output;     // feed_input: activated rows, then (gated) linear ones

 private:
  T5Config config_;
};
TORCH_MODULE(T5Block);

struct T5EncoderImpl : torch::nn::Module {
  explicit T5EncoderImpl(const T5Config& config);
  // ids [batch, tokens], mask [batch, tokens] (true or nonzero: text) -> [batch, tokens, dim]
  at::Tensor forward(const at::Tensor& ids, const std::optional<at::Tensor>& mask = {});

  const T5Config& config() const { return config_; }

  at::Tensor embedding;      // [vocabulary, dim]
  at::Tensor position_bias;  // [buckets, heads], shared by all blocks
  torch::nn::ModuleList blocks;
  at::Tensor final_norm;

 private:
  T5Config config_;
};
TORCH_MODULE(T5Encoder);

class T5TextEncoder final : public TextEncoder {
 public:
  T5TextEncoder(T5Encoder model, std::shared_ptr<const TextTokenizer> tokenizer);

  std::string kind() const override { return "t5"; }
  int64_t dim() const override { return model_->config().dim; }
  const std::string& identity() const override { return identity_; }
  TextEmbeddings encode(const std::vector<std::string>& texts) const override;
  void move_to(at::Device device) override { model_->to(device); }

  const T5Encoder& model() const { return model_; }
  const TextTokenizer& tokenizer() const { return *tokenizer_; }

 private:
  mutable T5Encoder model_;
  std::shared_ptr<const TextTokenizer> tokenizer_;
  std::string identity_;
};

}  // namespace melete

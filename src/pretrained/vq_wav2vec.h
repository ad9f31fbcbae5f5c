// vq-wav2vec (Baevski et al. 2020): convolutions over the wave, then a quantizer of several groups, each of
// which gives a token a frame. Only what the tokens need; the context network is left out.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/pimpl.h>

#include <string>
#include <vector>

#include "config/schema.h"
#include "roles/semantic_tokenizer.h"

namespace melete {

struct VqWav2VecConfig {
  int64_t sample_rate_hz = 16000;
  std::vector<int64_t> conv_dims = {512, 512, 512, 512, 512, 512, 512, 512};
  std::vector<int64_t> conv_kernels = {10, 8, 4, 4, 4, 1, 1, 1};
  std::vector<int64_t> conv_strides = {5, 4, 2, 2, 2, 1, 1, 1};
  std::string activation = "relu";
  bool affine_norm = true;
  bool skip_connections = false;
  double residual_scale = 0.5;
  bool log_compression = true;
  std::string quantizer = "kmeans";  // "kmeans": nearest vector; "gumbel": largest logit
  int64_t codebook_size = 320;       // of a group
  int64_t groups = 2;
  bool shared_codebook = false;   // by all groups
  int64_t quantizer_dim = 0;      // of all groups together; 0: that of the convolutions
  int64_t projection_layers = 1;  // of gumbel's logits

  int64_t samples_per_frame() const;
  int64_t shortest_samples() const;
  int64_t frames(int64_t samples) const;
  void check() const;
};
void describe(Schema& schema, VqWav2VecConfig& config);

struct VqWav2VecImpl : torch::nn::Module {
  explicit VqWav2VecImpl(const VqWav2VecConfig& config);

  at::Tensor features(const at::Tensor& wave);   // [batch, samples] -> [batch, channels, frames]
  at::Tensor codes(const at::Tensor& features);  // -> [batch, frames, groups] int64

  const VqWav2VecConfig& config() const { return config_; }

  std::vector<at::Tensor> conv_weights, norm_weights, norm_biases;
  // kmeans
  at::Tensor projection_weight, projection_norm_weight, projection_norm_bias, codebook;
  // gumbel
  std::vector<at::Tensor> logit_weights, logit_biases;

 private:
  VqWav2VecConfig config_;
};
TORCH_MODULE(VqWav2Vec);

class VqWav2VecTokenizer final : public SemanticTokenizer {
 public:
  explicit VqWav2VecTokenizer(VqWav2Vec model);

  std::string kind() const override { return "vq-wav2vec"; }
  int64_t rate_hz() const override { return model_->config().sample_rate_hz; }
  // The groups' tokens of a frame follow each other.
  int64_t samples_per_token() const override {
    return model_->config().samples_per_frame() / model_->config().groups;
  }
  int64_t codebook_size() const override { return model_->config().codebook_size; }
  const std::string& identity() const override { return identity_; }
  int64_t tokens(int64_t samples) const override {
    return model_->config().frames(samples) * model_->config().groups;
  }
  int64_t shortest_samples() const override { return model_->config().shortest_samples(); }
  at::Tensor tokenize(const at::Tensor& audio) const override;
  void move_to(at::Device device) override { model_->to(device); }

  const VqWav2Vec& model() const { return model_; }

 private:
  mutable VqWav2Vec model_;
  std::string identity_;
};

}  // namespace melete

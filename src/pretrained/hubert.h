// HuBERT (Hsu et al. 2021): sound to hidden states that k-means turns into semantic tokens. Both styles of
// normalisation: base (group norm in the first convolution, norms after the sums) and large (layer norm in
// every convolution, norms before).
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/pimpl.h>

#include <string>
#include <vector>

#include "config/schema.h"

namespace melete {

struct HubertConfig {
  int64_t sample_rate_hz = 16000;
  std::vector<int64_t> conv_dims = {512, 512, 512, 512, 512, 512, 512};
  std::vector<int64_t> conv_kernels = {10, 3, 3, 3, 3, 2, 2};
  std::vector<int64_t> conv_strides = {5, 2, 2, 2, 2, 2, 2};
  bool conv_bias = false;
  std::string conv_norm = "group";  // "group": in the first layer only; "layer": in all
  std::string conv_activation = "gelu";
  bool feature_norm = true;  // before the projection to `dim`
  int64_t dim = 768;
  int64_t layers = 12;
  int64_t heads = 12;
  int64_t feed_forward_dim = 3072;
  std::string activation = "gelu";
  bool norm_first = false;  // HF: do_stable_layer_norm, fairseq: layer_norm_first
  double norm_epsilon = 1e-5;
  int64_t position_kernel = 128;
  int64_t position_groups = 16;
  bool position_batch_norm = false;
  bool standardise_wave = false;  // zero mean, unit variance, as the large models were trained

  int64_t samples_per_frame() const;  // product of the strides
  int64_t shortest_samples() const;   // that give a frame
  int64_t frames(int64_t samples) const;
  void check() const;
};
void describe(Schema& schema, HubertConfig& config);

struct HubertConvImpl : torch::nn::Module {
  enum class Norm { none, group, layer };
  HubertConvImpl(const HubertConfig& config, int64_t index);
  at::Tensor forward(const at::Tensor& x);  // [batch, in, time] -> [batch, out, frames]

  at::Tensor weight, bias, norm_weight, norm_bias;

 private:
  Norm norm_;
  int64_t stride_;
  std::string activation_;
};
TORCH_MODULE(HubertConv);

struct HubertLayerImpl : torch::nn::Module {
  explicit HubertLayerImpl(const HubertConfig& config);
  at::Tensor forward(const at::Tensor& x);  // [batch, frames, dim]

  at::Tensor qkv_weight, qkv_bias, output_weight, output_bias, attention_norm_weight, attention_norm_bias;
  at::Tensor feed_input_weight, feed_input_bias, feed_output_weight, feed_output_bias, feed_norm_weight,
      feed_norm_bias;

 private:
  at::Tensor attention(const at::Tensor& x) const;
  at::Tensor feed_forward(const at::Tensor& x) const;

  HubertConfig config_;
};
TORCH_MODULE(HubertLayer);

struct HubertImpl : torch::nn::Module {
  explicit HubertImpl(const HubertConfig& config);

  at::Tensor conv_features(const at::Tensor& wave);  // [batch, samples] -> [batch, conv dim, frames]
  // After `layer` transformer layers, before the final norm of norm_first: what fairseq calls output_layer.
  // [batch, samples] -> [batch, frames, dim]
  at::Tensor hidden_state(const at::Tensor& wave, int64_t layer);
  at::Tensor forward(const at::Tensor& wave);  // after all layers and the last norm

  const HubertConfig& config() const { return config_; }

  torch::nn::ModuleList convolutions, layers;
  at::Tensor feature_norm_weight, feature_norm_bias, projection_weight, projection_bias;
  at::Tensor position_weight, position_bias;  // weight norm folded
  at::Tensor position_scale, position_shift;  // batch norm of the position convolution's input, folded
  at::Tensor norm_weight, norm_bias;

 private:
  at::Tensor embed(const at::Tensor& features);  // [batch, conv dim, frames] -> [batch, frames, dim]

  HubertConfig config_;
};
TORCH_MODULE(Hubert);

}  // namespace melete

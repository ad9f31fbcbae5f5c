// EnCodec (Defossez et al. 2022): SEANet with an LSTM on both sides of a residual quantizer. Used with its
// public weights, weight norm folded.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/pimpl.h>

#include <string>
#include <vector>

#include "config/schema.h"
#include "nn/conv.h"
#include "roles/codec.h"

namespace melete {

struct EncodecConfig {
  int64_t sample_rate_hz = 24000;
  int64_t input_channels = 1;
  int64_t dim = 128;  // of the vectors that are quantized
  int64_t filters = 32;
  int64_t residual_layers = 1;
  std::vector<int64_t> ratios = {8, 5, 4, 2};  // of the decoder; the encoder goes through them backwards
  int64_t kernel = 7, last_kernel = 7, residual_kernel = 3;
  int64_t dilation_base = 2;
  int64_t compress = 2;  // residual units are this many times narrower inside
  int64_t lstm_layers = 2;
  bool causal = true;
  bool group_norm = false;  // over time and channels, after each convolution (the 48 kHz model)
  bool shortcut_convolution = true;
  std::string pad_mode = "reflect";
  double trim_right_ratio = 1;  // of a causal transposed convolution's overhang
  int64_t codebooks = 32;       // that the weights hold
  int64_t codebook_size = 1024;
  int64_t quantizers = 8;  // that are used: 8 are 6 kbit/s of the 24 kHz model

  int64_t samples_per_frame() const;
  // Quantizers that fit into a bandwidth; 0 is all of them.
  int64_t quantizers_for(double kbit_per_second) const;
};
void describe(Schema& schema, EncodecConfig& config);

// A convolution that keeps its input's length divided by the stride, rounded up.
struct EncodecConvImpl : torch::nn::Module {
  EncodecConvImpl(const EncodecConfig& config, int64_t in, int64_t out, int64_t kernel, int64_t stride = 1,
                  int64_t dilation = 1);
  at::Tensor forward(const at::Tensor& x);  // [batch, in, time] -> [batch, out, ceil(time / stride)]

  CausalConv1d convolution{nullptr};
  at::Tensor norm_weight, norm_bias;  // group_norm only

 private:
  EncodecConfig config_;
  int64_t kernel_, stride_, dilation_;
};
TORCH_MODULE(EncodecConv);

struct EncodecConvTransposeImpl : torch::nn::Module {
  EncodecConvTransposeImpl(const EncodecConfig& config, int64_t in, int64_t out, int64_t stride);
  at::Tensor forward(const at::Tensor& x);  // [batch, in, time] -> [batch, out, time * stride]

  CausalConvTranspose1d convolution{nullptr};
  at::Tensor norm_weight, norm_bias;  // group_norm only

 private:
  EncodecConfig config_;
  int64_t stride_;
};
TORCH_MODULE(EncodecConvTranspose);

struct EncodecUnitImpl : torch::nn::Module {
  EncodecUnitImpl(const EncodecConfig& config, int64_t channels, int64_t dilation);
  at::Tensor forward(const at::Tensor& x);

  EncodecConv first{nullptr}, second{nullptr}, shortcut{nullptr};
};
TORCH_MODULE(EncodecUnit);

// Adds its output to its input. [batch, channels, time]
struct EncodecLstmImpl : torch::nn::Module {
  EncodecLstmImpl(int64_t channels, int64_t layers);
  at::Tensor forward(const at::Tensor& x);

 private:
  int64_t layers_, channels_;
  std::vector<at::Tensor> weights_;  // as LibTorch orders them
};
TORCH_MODULE(EncodecLstm);

struct EncodecBlockImpl : torch::nn::Module {
  enum class Direction { down, up };
  EncodecBlockImpl(const EncodecConfig& config, Direction direction, int64_t in, int64_t ratio);
  at::Tensor forward(at::Tensor x);

  torch::nn::ModuleList units;
  EncodecConv down{nullptr};
  EncodecConvTranspose up{nullptr};
};
TORCH_MODULE(EncodecBlock);

struct EncodecImpl : torch::nn::Module {
  explicit EncodecImpl(const EncodecConfig& config);

  at::Tensor encode(const at::Tensor& wave);             // [batch, channels, samples] -> [batch, dim, frames]
  at::Tensor quantize(const at::Tensor& encoded) const;  // -> codes [batch, frames, quantizers]
  at::Tensor vectors(const at::Tensor& codes) const;     // the codes' sum: [batch, frames, dim]
  at::Tensor decode(const at::Tensor& vectors);          // [batch, frames, dim] -> [batch, channels, samples]

  const EncodecConfig& config() const { return config_; }

  EncodecConv encoder_input{nullptr}, encoder_output{nullptr}, decoder_input{nullptr},
      decoder_output{nullptr};
  torch::nn::ModuleList encoder_blocks, decoder_blocks;
  EncodecLstm encoder_lstm{nullptr}, decoder_lstm{nullptr};
  at::Tensor codebooks;  // [codebooks, codebook_size, dim]

 private:
  EncodecConfig config_;
};
TORCH_MODULE(Encodec);

class EncodecCodec final : public Codec {
 public:
  explicit EncodecCodec(Encodec model);

  std::string kind() const override { return "encodec"; }
  int64_t rate_hz() const override { return model_->config().sample_rate_hz; }
  int64_t samples_per_frame() const override { return model_->config().samples_per_frame(); }
  int64_t codebook_size() const override { return model_->config().codebook_size; }
  int64_t quantizers() const override { return model_->config().quantizers; }
  const std::string& identity() const override { return identity_; }
  // An unfinished last frame is filled up.
  int64_t frames(int64_t samples) const override {
    return (samples + samples_per_frame() - 1) / samples_per_frame();
  }
  at::Tensor encode(const at::Tensor& audio) const override;
  at::Tensor decode(const at::Tensor& codes) const override;
  void move_to(at::Device device) override { model_->to(device); }

  const Encodec& model() const { return model_; }

 private:
  mutable Encodec model_;
  std::string identity_;
};

}  // namespace melete

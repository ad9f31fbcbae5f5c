// SoundStream (Zeghidour et al. 2021): a causal convolutional codec with a residual quantizer in its middle.
//   wave -> encoder -> local attention -> quantizer -> local attention -> decoder -> wave
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/pimpl.h>

#include <optional>
#include <string>
#include <vector>

#include "config/schema.h"
#include "nn/conv.h"
#include "nn/gating.h"
#include "nn/local_transformer.h"
#include "nn/quantizer.h"

namespace melete {

struct SoundStreamConfig {
  int64_t sample_rate_hz = 16000;
  int64_t input_channels = 1;
  int64_t channels = 32;
  std::vector<int64_t> strides = {2, 4, 5, 8};
  std::vector<int64_t> channel_multiples = {2, 4, 8, 16};
  int64_t dim = 512;  // of the vectors that are quantized
  std::vector<int64_t> encoder_dilations = {1, 3, 9};
  std::vector<int64_t> decoder_dilations = {1, 3, 9};
  std::string pad_mode = "reflect";
  bool squeeze_excite = false;
  bool gate_loop = false;
  bool attention = true;
  int64_t attention_window = 128;
  int64_t attention_heads = 8;
  int64_t attention_head_dim = 64;
  int64_t attention_depth = 1;
  double attention_xpos_scale_base = 0;
  bool attention_position_bias = false;
  QuantizerConfig quantizer;
  // audiolm-pytorch's own arithmetic where it differs from the paper, see docs/differences.md.
  bool as_audiolm_pytorch = false;
  // Of a frame's codes, for models that learn them. "stages": all groups' codes of the first stage, then of
  // the second: the first codes are the coarse ones. "groups": group after group, as audiolm-pytorch has
  // them, and as codecs had them that are older than this setting.
  std::string code_order = "groups";
};
void describe(Schema& schema, SoundStreamConfig& config);

// Three dilated residual units, then a strided convolution; or a transposed one, then three units.
struct CodecBlockImpl : torch::nn::Module {
  enum class Direction { down, up };
  CodecBlockImpl(const SoundStreamConfig& config, Direction direction, int64_t in, int64_t out,
                 int64_t stride);
  at::Tensor forward(at::Tensor x);

  torch::nn::ModuleList units;
  CausalConv1d down{nullptr};
  CausalConvTranspose1d up{nullptr};
  GateLoop gate_loop{nullptr};

 private:
  bool doubled_residual_;
};
TORCH_MODULE(CodecBlock);

struct SoundStreamImpl : torch::nn::Module {
  explicit SoundStreamImpl(const SoundStreamConfig& config);

  struct Output {
    at::Tensor wave;     // [batch, channels, samples]
    at::Tensor encoded;  // [batch, frames, dim] what the quantizer saw
    Quantized quantized;
  };
  // wave [batch, channels, samples] as prepare() gives it. denoise: true and false are learned conditions;
  // unset leaves them out. update: codebooks follow in training.
  Output forward(const at::Tensor& wave, Draws* draws = nullptr, bool update = true,
                 std::optional<bool> denoise = {});

  // [batch, samples] or [batch, channels, samples] at any rate -> [batch, channels, samples] at the codec's
  // rate, cut to whole frames (from the left: the end is kept).
  at::Tensor prepare(const at::Tensor& wave, int64_t rate_hz = 0, bool cut_from_left = false) const;

  at::Tensor encode(const at::Tensor& wave, std::optional<bool> denoise = {});  // -> [batch, frames, dim]
  at::Tensor decode(at::Tensor vectors, std::optional<bool> denoise = {});  // [batch, frames, dim] -> wave

  // Without gradient, in eval mode: wave as in prepare() -> codes [groups, batch, frames, quantizers].
  at::Tensor tokenize(const at::Tensor& wave, int64_t rate_hz = 0);
  // codes [groups, batch, frames, quantizers] or [batch, frames, groups * quantizers]; later quantizers may
  // be missing.
  at::Tensor decode_codes(const at::Tensor& codes);

  int64_t samples_per_frame() const;
  double frames_per_second() const;
  double bits_per_second() const;
  const SoundStreamConfig& config() const { return config_; }

  CausalConv1d encoder_input{nullptr}, encoder_output{nullptr}, decoder_input{nullptr},
      decoder_output{nullptr};
  torch::nn::ModuleList encoder_blocks, decoder_blocks;
  LocalTransformer encoder_attention{nullptr}, decoder_attention{nullptr};
  Film encoder_film{nullptr}, decoder_film{nullptr};
  Quantizer quantizer{nullptr};

 private:
  at::Tensor denoise_condition(bool denoise, const at::Tensor& like) const;

  SoundStreamConfig config_;
};
TORCH_MODULE(SoundStream);

}  // namespace melete

// SoundStream (Zeghidour et al. 2021): a causal convolutional codec with a residual quantizer in its middle.
//   wave -> encoder -> local attention -> quantizer -> local attention -> decoder -> wave
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/schema.h"
#include "nn/conv.h"
#include "nn/gating.h"
#include "nn/local_transformer.h"
#include "nn/quantizer.h"
#include "nn/tone_bank.h"
#include "systems/soundstream/front.h"

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
  // How sound enters and leaves. "wave": convolutions over single samples, as in the paper. "lapped": frames
  // of front_hop coefficients of a lapped transform, so that all convolutions run at a low rate with many
  // channels (which a processor does best), and a linear way around all layers, which starts as the lowest
  // coefficients, makes the untrained codec a plain transform codec already. The encoder then looks front_hop
  // samples ahead. "tones": the same with frames of how loud each semitone and each band of noise is
  // (nn/tone_bank.h); the decoder makes all phases itself. For music, where models that learn the codes have
  // enough to do with the notes.
  std::string front = "wave";
  int64_t front_hop = 160;
  // Lapped: from this frequency on, the decoder says how large a coefficient is and its sign is drawn, by the
  // frame's number. What no bits are left for would otherwise keep its sign from frame to frame, and be a
  // tone.
  double noise_from_hz = 0;
  // Of a front of tones.
  int64_t lowest_note = 33;  // MIDI's number
  int64_t tones = 84;
  int64_t noise_bands = 28;

  int64_t samples_per_frame() const;
  int64_t front_samples() const { return front == "wave" ? 1 : front_hop; }  // of what is convolved first
  int64_t look_ahead() const;                                                // samples
  ToneBankConfig tone_bank() const { return {sample_rate_hz, front_hop, lowest_note, tones, noise_bands}; }
  int64_t signed_coefficients() const;  // of a frame of a lapped front: those below noise_from_hz
};
void describe(Schema& schema, SoundStreamConfig& config);

// Three dilated residual units, then a strided convolution; or a transposed one, then three units.
struct CodecBlockImpl : torch::nn::Module {
  enum class Direction { down, up };
  CodecBlockImpl(const SoundStreamConfig& config, Direction direction, int64_t in, int64_t out,
                 int64_t stride);
  at::Tensor forward(at::Tensor x, FrameHistory* history = nullptr);

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

  // -> [batch, frames, dim]. The last `ahead` samples of wave are only looked at, by a codec that looks ahead
  // (as many as it does, or none: then silence follows).
  // history: of the chunks before this one, see nn/conv.h.
  at::Tensor encode(const at::Tensor& wave, std::optional<bool> denoise = {}, int64_t ahead = 0,
                    FrameHistory* history = nullptr);
  // [batch, frames, dim] -> wave. first_frame: its number in the sound, where there is no history to tell.
  at::Tensor decode(at::Tensor vectors, std::optional<bool> denoise = {}, FrameHistory* history = nullptr,
                    int64_t first_frame = 0);

  // Without gradient, in eval mode: wave as in prepare() -> codes [groups, batch, frames, quantizers].
  at::Tensor tokenize(const at::Tensor& wave, int64_t rate_hz = 0);
  // codes [groups, batch, frames, quantizers] or [batch, frames, groups * quantizers]; later quantizers may
  // be missing.
  at::Tensor decode_codes(const at::Tensor& codes, FrameHistory* history = nullptr, int64_t first_frame = 0);

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
  // With a front only: past all layers, from its values to vectors and back.
  torch::nn::Linear encoder_shortcut{nullptr}, decoder_shortcut{nullptr};

 private:
  // wave [batch, channels, samples] -> values [batch, frames of the front, channels * values of one] and what
  // the convolutions see, [batch, channels * seen of one, frames of the front]
  SoundFront::Frames front_frames(const at::Tensor& wave, int64_t ahead, FrameHistory* history) const;
  // back to a wave; first: the number of the first frame of the front
  at::Tensor front_wave(const at::Tensor& values, FrameHistory* history, int64_t first) const;
  // Attention over a chunk and as much before it as it sees, from a border of its windows on.
  at::Tensor attend(LocalTransformer& attention, const at::Tensor& x, FrameHistory* history) const;
  at::Tensor denoise_condition(bool denoise, const at::Tensor& like) const;

  SoundStreamConfig config_;
  std::shared_ptr<const SoundFront> front_;  // null: convolutions over samples
};
TORCH_MODULE(SoundStream);

}  // namespace melete

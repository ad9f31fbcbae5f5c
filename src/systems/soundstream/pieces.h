// A codec over sounds of any length in bounded memory. Convolutions are causal and attention sees a bounded
// number of frames back, so a piece that begins early enough, at a border of the attention's windows, gives
// what the whole sound would give there. Pieces lie on a fixed grid: how the sound arrives changes nothing.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <span>
#include <vector>

#include "systems/soundstream/soundstream.h"

namespace melete {

struct PieceLayout {
  int64_t piece_frames = 0;  // 0: everything in one piece
  // Padding mirrors the beginning of a sound, so its first frames depend on that much of what follows; a
  // shorter sound is filled up with silence.
  int64_t least_frames = 1;
  int64_t encode_context = 0;  // frames before a piece that its codes depend on
  int64_t decode_context = 0;  // frames before a piece that its samples depend on
};

// About `seconds` a piece. Gate loops and squeeze-excitation look back without limit: such a codec can only
// work in one piece.
PieceLayout piece_layout(const SoundStreamConfig& config, double seconds);

class PieceEncoder {
 public:
  PieceEncoder(SoundStream model, const PieceLayout& layout);  // the model in eval mode, mono

  // Mono samples at the codec's rate, as many as there are. -> codes [frames, groups, quantizers] int64 that
  // became known, perhaps none.
  at::Tensor push(std::span<const float> samples);
  at::Tensor
  finish();  // the rest, filled up with silence to whole frames, and to layout.least_frames of them
  int64_t samples() const { return samples_; }

 private:
  at::Tensor run(int64_t frames);

  SoundStream model_;
  PieceLayout layout_;
  int64_t frame_samples_;
  std::vector<float> held_;  // from frame held_begin_ on
  int64_t held_begin_ = 0, done_ = 0, samples_ = 0;
};

class PieceDecoder {
 public:
  PieceDecoder(SoundStream model, const PieceLayout& layout);

  // codes [frames, groups, quantizers], later quantizers may be missing -> samples that became known.
  std::vector<float> push(const at::Tensor& codes);
  std::vector<float> finish();

 private:
  std::vector<float> run(int64_t frames);

  SoundStream model_;
  PieceLayout layout_;
  at::Tensor held_;  // from frame held_begin_ on
  int64_t held_begin_ = 0, done_ = 0;
};

// A fingerprint of settings and weights, 32 hexadecimal digits: two codecs with the same one make the same
// codes.
std::string codec_identity(const SoundStreamImpl& model);

}  // namespace melete

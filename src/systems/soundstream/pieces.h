// A codec over sounds of any length in bounded memory. Convolutions are causal and attention sees a bounded
// number of frames back, so a piece that begins early enough, at a border of the attention's windows, gives
// what the whole sound would give there. Pieces lie on a fixed grid: how the sound arrives changes nothing.
// Sound and codes are on the host, the model is wherever it is.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <span>
#include <vector>

#include "roles/codec.h"
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

class PieceEncoder final : public SoundToCodes {
 public:
  PieceEncoder(SoundStream model, const PieceLayout& layout);  // the model in eval mode, mono

  at::Tensor push(std::span<const float> samples) override;
  at::Tensor finish() override;  // filled up with silence to at least layout.least_frames

 private:
  at::Tensor run(int64_t frames);

  SoundStream model_;
  PieceLayout layout_;
  int64_t frame_samples_;
  std::vector<float> held_;  // from frame held_begin_ on
  int64_t held_begin_ = 0, done_ = 0;
  bool any_ = false;  // sound came
};

class PieceDecoder final : public CodesToSound {
 public:
  PieceDecoder(SoundStream model, const PieceLayout& layout);

  std::vector<float> push(const at::Tensor& codes) override;
  std::vector<float> finish() override;

 private:
  std::vector<float> run(int64_t frames);

  SoundStream model_;
  PieceLayout layout_;
  at::Tensor held_;  // from frame held_begin_ on
  int64_t held_begin_ = 0, done_ = 0;
};

}  // namespace melete

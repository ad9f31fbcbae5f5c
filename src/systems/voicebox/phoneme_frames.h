// Phonemes beside frames, and sound as an aligner hears it.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "data/base/phonemes.h"
#include "io/tensors.h"
#include "nn/mel_frames.h"

namespace melete::voicebox {

// The bytes of the lexicon as checkpoints keep them, and back; undefined, and nothing, where there is none.
at::Tensor kept_lexicon(const PhonemizerConfig& config);
void take_lexicon(PhonemizerConfig& config, const TensorMap& tensors);

// Each id as often as its count says: int64 [sum of counts]
at::Tensor ids_by_frame(const std::vector<int64_t>& ids, const std::vector<int64_t>& counts);

// About as much as a word: the frames of `count` phonemes about the middle of each row. tokens int64 [batch,
// frames], one a frame; lengths int64 [batch] -> bool [batch, frames]
at::Tensor phonemes_in_the_middle(const at::Tensor& tokens, const at::Tensor& lengths, int64_t count);

// Mel frames for the aligner: the silence before and after the speech is left out (with it, whatever has the
// most frames would be the last pause), bands are cut at a floor, and every recording has mean 0 and
// deviation 1, so that level and microphone do not matter.
struct AlignerFrames {
  at::Tensor frames;   // [batch, frames, mels], 0 in padding
  at::Tensor begins;   // int64 [batch]: frames of silence before the first one
  at::Tensor lengths;  // int64 [batch]
};
// waves [batch, samples], samples int64 [batch]: how many of them are each row's own
AlignerFrames aligner_frames(const MelFrames& mel, const at::Tensor& waves, const at::Tensor& samples);

}  // namespace melete::voicebox

// From semantic tokens to sound, in a voice: through AudioLM's coarse and fine stages, or through Voicebox.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "systems/audiolm/stages.h"
#include "systems/spear_tts/load.h"

namespace melete::spear_tts {

struct SoundConfig {
  std::string coarse, fine, codec;  // AudioLM's; no fine stage: coarse sound
  std::string voicebox, vocoder;    // told by semantic tokens
  int64_t steps = 0;                // of Voicebox's solver; 0: its own number
  std::string voice;                // recording
  double voice_seconds = 3;
};
void describe(Schema& schema, SoundConfig& config);

using SoundProgress = std::function<void(const char* part, int64_t done, int64_t of)>;

class TokenSound {
 public:
  virtual ~TokenSound() = default;
  virtual int64_t rate_hz() const = 0;
  // tokens int64 [n], on the CPU -> [samples], none where the model ended at once
  virtual at::Tensor say(const at::Tensor& tokens, uint64_t seed, const SoundProgress& progress) = 0;
};
// For tokens of `reader`, which came from `from`. An Error where another tokenizer's tokens are expected.
std::unique_ptr<TokenSound> open_token_sound(const SoundConfig& config, const Reader& reader,
                                             const std::string& from, Weights weights, at::Device device);

// What AudioLM's stages know of a voice: they go on from it.
struct StageVoice {
  at::Tensor tokens = at::empty({1, 0}, at::kLong);  // int64 [1, n]
  at::Tensor codes;  // int64 [1, frames, coarse (and fine) quantizers] or undefined
};
// Codes of what the tokens say, without the voice's: tokens int64 [1, n] -> int64 [1, at most new_frames,
// quantizers]; only coarse ones where `fine` is empty
at::Tensor stage_codes(CoarseTransformer& coarse, FineTransformer& fine, const at::Tensor& tokens,
                       const StageVoice& voice, int64_t new_frames, uint64_t seed,
                       const SoundProgress& progress = {});

}  // namespace melete::spear_tts

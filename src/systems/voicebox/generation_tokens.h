// Speech after a voice, for models that are told what to say by semantic tokens, or by nothing.
#pragma once

#include <memory>
#include <string>

#include "roles/semantic_tokenizer.h"
#include "systems/voicebox/load.h"
#include "systems/voicebox/sampling.h"

namespace melete::voicebox {

// The first seconds of a recording as the frames that the model knows. [1, frames, dim], scaled
at::Tensor voice_frames(const LoadedVoicebox& voicebox, const std::string& recording, double seconds);

struct Spoken {
  at::Tensor wave;  // [samples], without the voice's
  OdeWork work;     // of the solver
};
// So many frames in all, of which the first are the voice's [1, frames, dim]. tokens: int64 [1, n], the
// voice's among them; undefined: told nothing.
Spoken say_after(LoadedVoicebox& voicebox, const at::Tensor& voice, const at::Tensor& tokens, int64_t frames,
                 const FlowSampling& how, uint64_t seed);

class TokenSpeaker {
 public:
  // An Error where the model is told by something else. semantic_from: the tokenizer of a model that does not
  // say whose tokens it knows.
  explicit TokenSpeaker(LoadedVoicebox voicebox, at::Device device = at::kCPU,
                        const std::string& semantic_from = "");

  const SemanticTokenizer& tokenizer() const { return *tokenizer_; }
  int64_t rate_hz() const { return voicebox_.features->rate_hz(); }
  // All that is said from now on is in the voice of this recording, of which so much is taken.
  void take_voice(const std::string& recording, double seconds);

  // tokens int64 [1, n], of which each lasts as long as the tokenizer says: runs are whole
  Spoken say(const at::Tensor& tokens, const FlowSampling& how, uint64_t seed);

 private:
  LoadedVoicebox voicebox_;
  std::shared_ptr<const SemanticTokenizer> tokenizer_;
  at::Tensor voice_tokens_;  // int64 [1, n]
  at::Tensor voice_frames_;  // [1, frames, dim], scaled
};

}  // namespace melete::voicebox

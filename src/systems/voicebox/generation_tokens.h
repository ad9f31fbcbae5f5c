// Speech from semantic tokens, for a model that is told what to say by them.
#pragma once

#include <memory>
#include <string>

#include "roles/semantic_tokenizer.h"
#include "systems/voicebox/load.h"
#include "systems/voicebox/sampling.h"

namespace melete::voicebox {

class TokenSpeaker {
 public:
  // An Error where the model is told by something else.
  explicit TokenSpeaker(LoadedVoicebox voicebox, at::Device device = at::kCPU);

  const SemanticTokenizer& tokenizer() const { return *tokenizer_; }
  int64_t rate_hz() const { return voicebox_.features->rate_hz(); }
  // All that is said from now on is in the voice of this recording, of which so much is taken.
  void take_voice(const std::string& recording, double seconds);

  struct Spoken {
    at::Tensor wave;          // [samples], without the voice's
    int64_t evaluations = 0;  // of the network
  };
  // tokens int64 [1, n], of which each lasts as long as the tokenizer says: runs are whole
  Spoken say(const at::Tensor& tokens, const FlowSampling& how, uint64_t seed);

 private:
  LoadedVoicebox voicebox_;
  std::shared_ptr<const SemanticTokenizer> tokenizer_;
  at::Tensor voice_tokens_;  // int64 [1, n]
  at::Tensor voice_frames_;  // [1, frames, dim], scaled
};

}  // namespace melete::voicebox

#include "systems/voicebox/generation_tokens.h"

#include "core/base/error.h"
#include "generate/sampling.h"
#include "io/audio_tensor.h"
#include "roles/open.h"

namespace melete::voicebox {

TokenSpeaker::TokenSpeaker(LoadedVoicebox voicebox, at::Device device)
    : voicebox_(std::move(voicebox)),
      voice_tokens_(at::empty({1, 0}, at::kLong)),
      voice_frames_(at::zeros({1, 0, voicebox_.features->dim()})) {
  require(voicebox_.told_by == "semantic",
          "[voicebox] expected a model that is told by semantic tokens, this one is told by {}",
          voicebox_.told_by);
  tokenizer_ = open_semantic_tokenizer(voicebox_.semantic_from, device);
}

void TokenSpeaker::take_voice(const std::string& recording, double seconds) {
  const auto& features = *voicebox_.features;
  const auto heard = [&](int64_t rate_hz) { return read_mono(recording, rate_hz, seconds).unsqueeze(0); };
  voice_tokens_ = tokenizer_->tokenize(heard(tokenizer_->rate_hz()));
  voice_frames_ = voicebox_.scale.apply(features.encode(heard(features.rate_hz())));
}

TokenSpeaker::Spoken TokenSpeaker::say(const at::Tensor& tokens, const FlowSampling& how, uint64_t seed) {
  const auto& features = *voicebox_.features;
  const int64_t known = voice_frames_.size(1);
  Condition condition;
  condition.tokens = at::cat({voice_tokens_, tokens.to(voice_tokens_.device())}, 1);
  const int64_t frames = frames_of_tokens(condition.tokens.size(1), tokenizer_->tokens_per_second(),
                                          features.frames_per_second());
  require(frames > known, "[voicebox] there is nothing left to say after the voice's {} frames", known);
  condition.context = with_length(voice_frames_, frames);
  condition.hidden = at::ones({1, frames}, at::kBool);
  condition.hidden.narrow(1, 0, known).fill_(false);
  RowDraws draws(seed, "voicebox", 1);
  const Sampled made = sample(voicebox_.model, condition, how, draws);
  const at::Tensor wave = features.decode(voicebox_.scale.undo(made.frames))[0];
  const int64_t skip = known * features.samples_per_frame();
  return {wave.narrow(0, skip, wave.size(0) - skip), made.solution.evaluations};
}

}  // namespace melete::voicebox

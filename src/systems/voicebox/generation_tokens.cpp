#include "systems/voicebox/generation_tokens.h"

#include <algorithm>

#include "core/base/error.h"
#include "generate/sampling.h"
#include "io/audio_tensor.h"
#include "roles/open.h"

namespace melete::voicebox {

at::Tensor voice_frames(const LoadedVoicebox& voicebox, const std::string& recording, double seconds) {
  const AudioFeatures& features = *voicebox.features;
  return voicebox.scale.apply(
      features.encode(read_mono(recording, features.rate_hz(), seconds).unsqueeze(0)));
}

Spoken say_after(LoadedVoicebox& voicebox, const at::Tensor& voice, const at::Tensor& tokens, int64_t frames,
                 const FlowSampling& how, uint64_t seed) {
  const int64_t known = voice.size(1);
  require(frames > known, "[voicebox] there is nothing left to say after the voice's {} frames", known);
  Condition condition;
  condition.context = with_length(voice, frames);
  condition.tokens = tokens;
  condition.hidden = at::ones({1, frames}, at::kBool);
  condition.hidden.narrow(1, 0, known).fill_(false);
  RowDraws draws(seed, "voicebox", 1);
  const Sampled made = sample(voicebox.model, condition, how, draws);
  const AudioFeatures& features = *voicebox.features;
  const at::Tensor wave = features.decode(voicebox.scale.undo(made.frames))[0];
  const int64_t skip = std::min(known * features.samples_per_frame(), wave.size(0));
  return {wave.narrow(0, skip, wave.size(0) - skip), made.solution};
}

TokenSpeaker::TokenSpeaker(LoadedVoicebox voicebox, at::Device device, const std::string& semantic_from)
    : voicebox_(std::move(voicebox)),
      voice_tokens_(at::empty({1, 0}, at::kLong)),
      voice_frames_(at::zeros({1, 0, voicebox_.features->dim()})) {
  require(voicebox_.told_by == "semantic",
          "[voicebox] expected a model that is told by semantic tokens, this one is told by {}",
          voicebox_.told_by);
  require(semantic_from.empty() || voicebox_.semantic_from.empty(),
          "[semantic_from] this model knows the tokens of {} and no others; leave it out",
          voicebox_.semantic_from);
  const std::string& from = semantic_from.empty() ? voicebox_.semantic_from : semantic_from;
  require(!from.empty(),
          "[semantic_from] this model does not say whose tokens it knows (an imported file never does); name "
          "the tokenizer");
  tokenizer_ = open_semantic_tokenizer(from, device);
  const int64_t known = voicebox_.model->config().tokens;
  require(tokenizer_->codebook_size() == known, "[semantic_from] {} makes {} tokens, the model knows {}",
          from, tokenizer_->codebook_size(), known);
}

void TokenSpeaker::take_voice(const std::string& recording, double seconds) {
  voice_tokens_ = tokenizer_->tokenize(read_mono(recording, tokenizer_->rate_hz(), seconds).unsqueeze(0));
  voice_frames_ = voice_frames(voicebox_, recording, seconds);
}

Spoken TokenSpeaker::say(const at::Tensor& tokens, const FlowSampling& how, uint64_t seed) {
  const at::Tensor all = at::cat({voice_tokens_, tokens.to(voice_tokens_.device())}, 1);
  const int64_t frames =
      frames_of_tokens(all.size(1), tokenizer_->tokens_per_second(), voicebox_.features->frames_per_second());
  return say_after(voicebox_, voice_frames_, all, frames, how, seed);
}

}  // namespace melete::voicebox

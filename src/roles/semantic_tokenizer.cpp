#include "roles/semantic_tokenizer.h"

#include "core/base/error.h"
#include "io/resample_audio.h"

namespace melete {

at::Tensor cut_to_multiple(const at::Tensor& audio, int64_t multiple, bool keep_end) {
  const int64_t samples = audio.size(-1), kept = samples / multiple * multiple;
  return audio.narrow(-1, keep_end ? samples - kept : 0, kept);
}

at::Tensor SemanticTokenizer::tokenize_at(const at::Tensor& audio, int64_t audio_rate_hz) const {
  return tokenize(cut_to_multiple(resample_audio(audio, audio_rate_hz, rate_hz()), samples_per_token()));
}

}  // namespace melete

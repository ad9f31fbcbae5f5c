#include "roles/codec.h"

#include "io/resample_audio.h"

namespace melete {

at::Tensor Codec::encode_at(const at::Tensor& audio, int64_t audio_rate_hz) const {
  return encode(resample_audio(audio, audio_rate_hz, rate_hz()));
}

}  // namespace melete

// SoundStream behind the face of any codec.
#pragma once

#include "roles/codec.h"
#include "systems/soundstream/soundstream.h"

namespace melete {

// A trained SoundStream of one channel. The model is put in eval mode and must not be trained any more.
// Groups lie side by side: codes [batch, frames, groups * quantizers].
class SoundStreamCodec final : public Codec {
 public:
  explicit SoundStreamCodec(SoundStream model);

  std::string kind() const override { return "soundstream"; }
  int64_t rate_hz() const override;
  int64_t samples_per_frame() const override;
  int64_t codebook_size() const override;
  int64_t quantizers() const override;
  const std::string& identity() const override { return identity_; }
  int64_t frames(int64_t samples) const override { return samples / samples_per_frame(); }
  at::Tensor encode(const at::Tensor& audio) const override;  // cut to whole frames
  at::Tensor decode(const at::Tensor& codes) const override;

  const SoundStream& model() const { return model_; }

 private:
  mutable SoundStream model_;
  std::string identity_;
};

}  // namespace melete

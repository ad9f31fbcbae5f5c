// What SoundStream's encoder says of sound, as frames of real numbers that another model can make.
#pragma once

#include "roles/audio_features.h"
#include "systems/soundstream/soundstream.h"

namespace melete {

// On the way back frames are quantized, so that small errors of whoever made them are not heard. The model is
// put in eval mode and must not be trained any more.
class SoundStreamLatents final : public AudioFeatures {
 public:
  explicit SoundStreamLatents(SoundStream model);

  std::string kind() const override { return "soundstream"; }
  int64_t rate_hz() const override { return model_->config().sample_rate_hz; }
  int64_t dim() const override { return model_->config().dim; }
  int64_t samples_per_frame() const override { return model_->samples_per_frame(); }
  int64_t frames(int64_t samples) const override { return samples / samples_per_frame(); }
  const std::string& identity() const override { return identity_; }
  void move_to(at::Device device) override { model_->to(device); }
  at::Tensor encode(const at::Tensor& audio) const override;  // cut to whole frames
  at::Tensor decode(const at::Tensor& frames) const override;

 private:
  mutable SoundStream model_;
  std::string identity_;
};

}  // namespace melete

// Mel frames back to sound without a trained vocoder (Griffin and Lim 1984): the last resort. Magnitudes are
// guessed from the bands, phases by going back and forth between spectrum and sound until they agree, with
// momentum (Perraudin, Balazs, Søndergaard 2013).
#pragma once

#include <string>

#include "nn/mel_frames.h"
#include "roles/audio_features.h"

namespace melete {

class MelGriffinLim final : public AudioFeatures {
 public:
  explicit MelGriffinLim(const MelFramesConfig& config, int64_t rounds = 60);

  std::string kind() const override { return "mel"; }
  int64_t rate_hz() const override { return mel_.config().rate_hz; }
  int64_t dim() const override { return mel_.config().mels; }
  int64_t samples_per_frame() const override { return mel_.config().hop; }
  int64_t frames(int64_t samples) const override { return mel_.frames(samples); }
  const std::string& identity() const override { return identity_; }
  void move_to(at::Device device) override { filters_ = filters_.to(device); }
  at::Tensor encode(const at::Tensor& audio) const override;
  at::Tensor decode(const at::Tensor& frames) const override;  // the same for the same frames

 private:
  at::Tensor magnitudes(const at::Tensor& bands) const;  // [batch, frames, mels] -> [batch, frames, bins]

  MelFrames mel_;
  at::Tensor filters_;  // [n_fft / 2 + 1, mels]
  int64_t rounds_;
  std::string identity_;
};

}  // namespace melete

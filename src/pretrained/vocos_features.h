// Frames that Vocos turns back into sound: mel bands, and the latents of EnCodec.
#pragma once

#include <string>

#include "nn/mel_frames.h"
#include "pretrained/encodec.h"
#include "pretrained/vocos.h"
#include "roles/audio_features.h"

namespace melete {

class MelVocos final : public AudioFeatures {
 public:
  MelVocos(const MelFramesConfig& config, Vocos vocoder);

  std::string kind() const override { return "mel"; }
  int64_t rate_hz() const override { return mel_.config().rate_hz; }
  int64_t dim() const override { return mel_.config().mels; }
  int64_t samples_per_frame() const override { return mel_.config().hop; }
  int64_t frames(int64_t samples) const override { return mel_.frames(samples); }
  const std::string& identity() const override { return identity_; }
  void move_to(at::Device device) override { vocoder_->to(device); }
  at::Tensor encode(const at::Tensor& audio) const override;
  // Decibels and power come to the vocoder as amplitudes, which is what voicebox-pytorch gives it.
  at::Tensor decode(const at::Tensor& frames) const override;

 private:
  MelFrames mel_;
  mutable Vocos vocoder_;
  std::string identity_;
};

// Frames are sums of EnCodec's codebook vectors; on the way back they are quantized once more, and Vocos
// takes the place of EnCodec's decoder.
class EncodecVocos final : public AudioFeatures {
 public:
  // bandwidth: which of Vocos's conditions; of the published model 2 are 6 kbit/s, 8 quantizers.
  EncodecVocos(Encodec codec, Vocos vocoder, int64_t bandwidth = 2);

  std::string kind() const override { return "encodec"; }
  int64_t rate_hz() const override { return codec_.rate_hz(); }
  int64_t dim() const override { return codec_.model()->config().dim; }
  int64_t samples_per_frame() const override { return codec_.samples_per_frame(); }
  int64_t frames(int64_t samples) const override { return codec_.frames(samples); }
  const std::string& identity() const override { return identity_; }
  void move_to(at::Device device) override;
  at::Tensor encode(const at::Tensor& audio) const override;
  at::Tensor decode(const at::Tensor& frames) const override;

  at::Tensor codes(
      const at::Tensor& frames) const;  // [batch, frames, dim] -> int64 [batch, frames, quantizers]

  const EncodecCodec& codec() const { return codec_; }

 private:
  EncodecCodec codec_;
  mutable Vocos vocoder_;
  int64_t bandwidth_;
  std::string identity_;
};

}  // namespace melete

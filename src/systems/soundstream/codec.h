// SoundStream behind the face of any codec.
#pragma once

#include "roles/codec.h"
#include "systems/soundstream/soundstream.h"

namespace melete {

// A trained SoundStream of one channel. The model is put in eval mode and must not be trained any more.
// Codes [batch, frames, quantizers] stand in the order that the model's code_order says.
class SoundStreamCodec final : public Codec {
 public:
  explicit SoundStreamCodec(SoundStream model);

  std::string kind() const override { return "soundstream"; }
  int64_t rate_hz() const override { return model_->config().sample_rate_hz; }
  int64_t samples_per_frame() const override { return model_->samples_per_frame(); }
  int64_t codebook_size() const override { return model_->quantizer->codebook_size(); }
  int64_t quantizers() const override { return model_->config().quantizer.codes_per_frame(); }
  int64_t groups() const override { return model_->config().quantizer.groups; }
  const std::string& identity() const override { return identity_; }
  int64_t frames(int64_t samples) const override { return samples / samples_per_frame(); }
  at::Tensor encode(const at::Tensor& audio) const override;  // cut to whole frames
  at::Tensor decode(const at::Tensor& codes) const override;
  void move_to(at::Device device) override { model_->to(device); }

  std::unique_ptr<SoundToCodes> sound_to_codes(double piece_seconds) const override;
  std::unique_ptr<CodesToSound> codes_to_sound(double piece_seconds) const override;
  bool bounded() const override;
  std::unique_ptr<SoundToCodes> live_sound_to_codes() const override;
  std::unique_ptr<CodesToSound> live_codes_to_sound() const override;
  LiveDelay live_delay() const override;
  bool answers_to(const std::string& written) const override;

  const SoundStream& model() const { return model_; }

 private:
  // codes [groups, batch, frames, codes of a group] -> [batch, frames, quantizers]
  at::Tensor in_order(const at::Tensor& codes) const;
  // The other way round; codes that are missing at the end of a frame become -1.
  at::Tensor by_group(const at::Tensor& codes) const;

  mutable SoundStream model_;
  std::string identity_;
};

}  // namespace melete

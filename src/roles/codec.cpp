#include "roles/codec.h"

#include "core/base/error.h"
#include "io/resample_audio.h"

namespace melete {

namespace {

// Everything at the end, for codecs of one group.
class WholeSoundToCodes final : public SoundToCodes {
 public:
  explicit WholeSoundToCodes(const Codec& codec) : codec_(codec) {}

  at::Tensor push(std::span<const float> samples) override {
    held_.insert(held_.end(), samples.begin(), samples.end());
    return none();
  }
  at::Tensor finish() override {
    if (held_.empty()) return none();
    const auto frame = static_cast<size_t>(codec_.samples_per_frame());
    held_.resize((held_.size() + frame - 1) / frame * frame);
    const at::Tensor audio = at::from_blob(held_.data(), {1, static_cast<int64_t>(held_.size())}, at::kFloat);
    return codec_.encode(audio)[0].unsqueeze(1);
  }

 private:
  at::Tensor none() const { return at::empty({0, 1, codec_.quantizers()}, at::kLong); }

  const Codec& codec_;
  std::vector<float> held_;
};

class WholeCodesToSound final : public CodesToSound {
 public:
  explicit WholeCodesToSound(const Codec& codec) : codec_(codec) {}

  std::vector<float> push(const at::Tensor& codes) override {
    held_.push_back(codes);
    return {};
  }
  std::vector<float> finish() override {
    if (held_.empty()) return {};
    const at::Tensor codes = at::cat(held_).squeeze(1).unsqueeze(0);
    const at::Tensor wave = codec_.decode(codes)[0].to(at::kFloat).contiguous();
    return {wave.data_ptr<float>(), wave.data_ptr<float>() + wave.numel()};
  }

 private:
  const Codec& codec_;
  std::vector<at::Tensor> held_;
};

void require_one_group(const Codec& codec) {
  require(codec.groups() == 1, "[codec] a `{}` of {} groups cannot be read as it comes", codec.kind(),
          codec.groups());
}

}  // namespace

std::unique_ptr<SoundToCodes> Codec::sound_to_codes(double) const {
  require_one_group(*this);
  return std::make_unique<WholeSoundToCodes>(*this);
}

std::unique_ptr<CodesToSound> Codec::codes_to_sound(double) const {
  require_one_group(*this);
  return std::make_unique<WholeCodesToSound>(*this);
}

at::Tensor Codec::encode_at(const at::Tensor& audio, int64_t audio_rate_hz) const {
  return encode(resample_audio(audio, audio_rate_hz, rate_hz()));
}

std::unique_ptr<SoundToCodes> Codec::live_sound_to_codes() const {
  fail("[codec] {} cannot work on a sound that is still going on; try without --stream", kind());
}

std::unique_ptr<CodesToSound> Codec::live_codes_to_sound() const {
  fail("[codec] {} cannot work on a sound that is still going on; try without --stream", kind());
}

Codec::LiveDelay Codec::live_delay() const {
  return {samples_per_frame(), samples_per_frame()};
}

}  // namespace melete

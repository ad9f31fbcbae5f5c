#include "pretrained/vocos_features.h"

#include "core/base/error.h"
#include "nn/frozen.h"
#include "nn/identity.h"

namespace melete {

namespace {

std::string identity_with(const std::string& kind, const nlohmann::ordered_json& config,
                          const std::string& of_codec, const Vocos& vocoder) {
  VocosConfig settings = vocoder->config();
  return identity_of(kind, {{"frames", config}, {"codec", of_codec}, {"vocos", schema_of(settings).json()}},
                     tensors_of(*vocoder));
}

}  // namespace

MelVocos::MelVocos(const MelFramesConfig& config, Vocos vocoder)
    : mel_(config), vocoder_(std::move(vocoder)) {
  const VocosConfig& vocos = vocoder_->config();
  require(vocos.input_dim == config.mels, "[vocos] expected frames of {} mels, got {}", vocos.input_dim,
          config.mels);
  require(config.values != "log_magnitude" || (vocos.hop == config.hop && vocos.edges == config.edges),
          "[vocos] the vocoder makes {} samples of a frame ({}), its frames are {} apart ({})", vocos.hop,
          vocos.edges, config.hop, config.edges);
  freeze(*vocoder_);
  identity_ = identity_with(kind(), identifying_settings(config), "", vocoder_);
}

at::Tensor MelVocos::encode(const at::Tensor& audio) const {
  const at::Tensor wave = audio.to(device_of(*vocoder_));
  const FrozenScope frozen(wave);
  return mel_(wave).to(audio.device());
}

at::Tensor MelVocos::decode(const at::Tensor& frames) const {
  const at::Tensor here = frames.to(device_of(*vocoder_));
  const FrozenScope frozen(here);
  return vocoder_->forward(mel_.config().values == "decibels" ? at::pow(10.0, 0.05 * here) : here)
      .to(frames.device());
}

EncodecVocos::EncodecVocos(Encodec codec, Vocos vocoder, int64_t bandwidth)
    : codec_(std::move(codec)), vocoder_(std::move(vocoder)), bandwidth_(bandwidth) {
  const VocosConfig& vocos = vocoder_->config();
  require(vocos.input_dim == dim() && vocos.hop == samples_per_frame(),
          "[vocos] expected a vocoder of {} values and {} samples a frame, got {} and {}", dim(),
          samples_per_frame(), vocos.input_dim, vocos.hop);
  freeze(*vocoder_);
  identity_ = identity_with(kind(), {{"bandwidth", bandwidth}}, codec_.identity(), vocoder_);
}

void EncodecVocos::move_to(at::Device device) {
  codec_.move_to(device);
  vocoder_->to(device);
}

at::Tensor EncodecVocos::encode(const at::Tensor& audio) const {
  const at::Tensor wave = audio.to(device_of(*vocoder_));
  const FrozenScope frozen(wave);
  return codec_.model()->vectors(codec_.encode(wave)).to(audio.device());
}

at::Tensor EncodecVocos::codes(const at::Tensor& frames) const {
  const at::Tensor here = frames.to(device_of(*vocoder_));
  const FrozenScope frozen(here);
  return codec_.model()->quantize(here.transpose(1, 2)).to(frames.device());
}

at::Tensor EncodecVocos::decode(const at::Tensor& frames) const {
  const at::Tensor here = frames.to(device_of(*vocoder_));
  const FrozenScope frozen(here);
  const at::Tensor vectors = vocoder_->frames_of_codes(codes(here), codec_.codebook_size());
  return vocoder_->forward(vectors, bandwidth_).to(frames.device());
}

}  // namespace melete

#include "systems/soundstream/latents.h"

#include "core/base/error.h"
#include "nn/frozen.h"
#include "systems/soundstream/identity.h"

namespace melete {

SoundStreamLatents::SoundStreamLatents(SoundStream model) : model_(std::move(model)) {
  require(model_->config().input_channels == 1,
          "[codec] expected a SoundStream of one channel, got one of {}", model_->config().input_channels);
  freeze(*model_);
  identity_ = latents_identity(*model_);
}

at::Tensor SoundStreamLatents::encode(const at::Tensor& audio) const {
  const at::Tensor wave = audio.to(device_of(*model_));
  const FrozenScope frozen(wave);
  return model_->encode(model_->prepare(wave)).to(audio.device(), at::kFloat);
}

at::Tensor SoundStreamLatents::decode(const at::Tensor& frames) const {
  const at::Tensor here = frames.to(device_of(*model_));
  const FrozenScope frozen(here);
  return model_->decode(model_->quantizer->forward(here, nullptr).vectors).squeeze(1).to(frames.device());
}

}  // namespace melete

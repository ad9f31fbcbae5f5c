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
  const FrozenScope frozen(audio);
  return model_->encode(model_->prepare(audio)).to(at::kFloat);
}

at::Tensor SoundStreamLatents::decode(const at::Tensor& frames) const {
  const FrozenScope frozen(frames);
  return model_->decode(model_->quantizer->forward(frames, nullptr).vectors).squeeze(1);
}

}  // namespace melete

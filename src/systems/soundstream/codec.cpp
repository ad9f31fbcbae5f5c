#include "systems/soundstream/codec.h"

#include <fmt/ranges.h>

#include "config/schema.h"
#include "core/base/error.h"
#include "nn/frozen.h"

namespace melete {

namespace {

// What a codec's identity is made of: its settings. Those that are younger than tokens and stages which name
// it count only where they differ from their defaults, or every new setting would orphan them.
nlohmann::ordered_json identifying_settings(SoundStreamConfig config) {
  SoundStreamConfig plain;
  nlohmann::ordered_json settings = schema_of(config).json();
  const nlohmann::ordered_json defaults = schema_of(plain).json();
  for (const char* younger :
       {"codebooks", "separate_codebooks", "epsilon", "codebook_update", "cross_entropy_commitment",
        "orthogonal_weight", "orthogonal_active_only", "orthogonal_max_codes", "differentiable_choice",
        "reinmax", "synchronous_update", "affine", "affine_vectors_decay", "affine_codes_decay",
        "factorised_entropy", "scale", "lfq_activation"}) {
    const auto& usual = defaults.at("quantizer");
    if (usual.contains(younger) && settings["quantizer"].at(younger) == usual.at(younger))
      settings["quantizer"].erase(younger);
  }
  return settings;
}

}  // namespace

SoundStreamCodec::SoundStreamCodec(SoundStream model) : model_(std::move(model)) {
  SoundStreamConfig config = model_->config();
  require(config.input_channels == 1, "[codec] expected a SoundStream of one channel, got one of {}",
          config.input_channels);
  freeze(*model_);
  identity_ = identity_of(kind(), identifying_settings(config), tensors_of(*model_));
}

int64_t SoundStreamCodec::rate_hz() const {
  return model_->config().sample_rate_hz;
}

int64_t SoundStreamCodec::samples_per_frame() const {
  return model_->samples_per_frame();
}

int64_t SoundStreamCodec::codebook_size() const {
  return model_->quantizer->codebook_size();
}

int64_t SoundStreamCodec::quantizers() const {
  return model_->config().quantizer.groups * model_->config().quantizer.quantizers;
}

at::Tensor SoundStreamCodec::encode(const at::Tensor& audio) const {
  require(audio.dim() == 2, "[codec] expected audio [batch, samples], got {} dimensions", audio.dim());
  const FrozenScope frozen(audio);
  // [groups, batch, frames, quantizers]
  const at::Tensor codes = model_->quantizer->forward(model_->encode(model_->prepare(audio)), nullptr).codes;
  return codes.permute({1, 2, 0, 3}).flatten(2).contiguous();
}

at::Tensor SoundStreamCodec::decode(const at::Tensor& codes) const {
  require(codes.dim() == 3 && codes.size(2) <= quantizers(),
          "[codec] expected codes [batch, frames, 1 .. {}], got [{}]", quantizers(),
          fmt::join(codes.sizes(), ", "));
  const FrozenScope frozen(codes);
  return model_->decode_codes(codes).squeeze(1);
}

}  // namespace melete

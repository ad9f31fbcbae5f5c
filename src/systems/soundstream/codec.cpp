#include "systems/soundstream/codec.h"

#include <fmt/ranges.h>

#include "core/base/error.h"
#include "nn/frozen.h"
#include "systems/soundstream/identity.h"
#include "systems/soundstream/live.h"
#include "systems/soundstream/pieces.h"

namespace melete {

SoundStreamCodec::SoundStreamCodec(SoundStream model) : model_(std::move(model)) {
  require(model_->config().input_channels == 1,
          "[codec] expected a SoundStream of one channel, got one of {}", model_->config().input_channels);
  freeze(*model_);
  identity_ = soundstream_identity(*model_);
}

at::Tensor SoundStreamCodec::in_order(const at::Tensor& codes) const {
  if (model_->config().code_order == "groups") return codes.permute({1, 2, 0, 3}).flatten(2).contiguous();
  const int64_t codebooks = model_->config().quantizer.codebooks;
  return codes.view({groups(), codes.size(1), codes.size(2), -1, codebooks})
      .permute({1, 2, 3, 0, 4})
      .flatten(2)
      .contiguous();
}

at::Tensor SoundStreamCodec::by_group(const at::Tensor& codes) const {
  const int64_t batch = codes.size(0), frames = codes.size(1), given = codes.size(2);
  const int64_t stage = groups() * model_->config().quantizer.codebooks;  // codes of one
  const bool by_stage = model_->config().code_order == "stages" || groups() == 1;
  const int64_t whole = by_stage ? (given + stage - 1) / stage * stage : quantizers();
  const int64_t absent[] = {0, whole - given};
  const at::Tensor all = whole > given ? at::constant_pad_nd(codes, absent, -1) : codes;
  if (!by_stage) return all.view({batch, frames, groups(), -1}).permute({2, 0, 1, 3});
  return all.view({batch, frames, -1, groups(), stage / groups()}).permute({3, 0, 1, 2, 4}).flatten(3);
}

at::Tensor SoundStreamCodec::encode(const at::Tensor& audio) const {
  require(audio.dim() == 2, "[codec] expected audio [batch, samples], got {} dimensions", audio.dim());
  const at::Tensor wave = audio.to(device_of(*model_));
  const FrozenScope frozen(wave);
  return in_order(model_->quantizer->forward(model_->encode(model_->prepare(wave)), nullptr).codes)
      .to(audio.device());
}

at::Tensor SoundStreamCodec::decode(const at::Tensor& codes) const {
  require(codes.dim() == 3 && codes.size(2) >= 1 && codes.size(2) <= quantizers(),
          "[codec] expected codes [batch, frames, 1 .. {}], got [{}]", quantizers(),
          fmt::join(codes.sizes(), ", "));
  const at::Tensor here = codes.to(device_of(*model_)).contiguous();
  const FrozenScope frozen(here);
  return model_->decode_codes(by_group(here)).squeeze(1).to(codes.device());
}

std::unique_ptr<SoundToCodes> SoundStreamCodec::sound_to_codes(double piece_seconds) const {
  return std::make_unique<PieceEncoder>(model_, piece_layout(model_->config(), piece_seconds));
}

std::unique_ptr<CodesToSound> SoundStreamCodec::codes_to_sound(double piece_seconds) const {
  return std::make_unique<PieceDecoder>(model_, piece_layout(model_->config(), piece_seconds));
}

bool SoundStreamCodec::bounded() const {
  return piece_layout(model_->config(), 1).piece_frames > 0;
}

std::unique_ptr<SoundToCodes> SoundStreamCodec::live_sound_to_codes() const {
  return std::make_unique<LiveEncoder>(model_);
}

std::unique_ptr<CodesToSound> SoundStreamCodec::live_codes_to_sound() const {
  return std::make_unique<LiveDecoder>(model_);
}

Codec::LiveDelay SoundStreamCodec::live_delay() const {
  const int64_t ahead = model_->config().look_ahead();
  const int64_t least = piece_layout(model_->config(), 0).least_frames;
  return {samples_per_frame() + ahead, least * samples_per_frame() + ahead};
}

bool SoundStreamCodec::answers_to(const std::string& written) const {
  if (written == identity_) return true;
  for (const std::string& former : former_file_identities(*model_))
    if (written == former) return true;
  return false;
}

}  // namespace melete

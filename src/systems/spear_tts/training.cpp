#include "systems/spear_tts/training.h"

#include "core/base/error.h"

namespace melete::spear_tts {

namespace {

const std::string kEncoderLayers = "encoder.layers.";

bool is_frozen_layer(const std::string& name, int64_t frozen) {
  return name.starts_with(kEncoderLayers) && std::stoll(name.substr(kEncoderLayers.size())) < frozen;
}

}  // namespace

bool is_trained(const std::string& name, const Direction& direction, int64_t frozen_encoder_layers) {
  const auto part = [&](const char* prefix) { return name.starts_with(prefix); };
  if (direction == kSpeechToSpeech) return true;
  if (direction == kSpeechToText) return !part("speech.") && !part("encoder.");
  if (direction == kTextToSpeech)
    return !part("speech.") && !part("decoder.") && !is_frozen_layer(name, frozen_encoder_layers);
  fail("[spear-tts] no training goes from {} to {}", name_of(direction.source), name_of(direction.target));
}

NamedTensors trained_parameters(TextToSemanticImpl& model, const Direction& direction,
                                int64_t frozen_encoder_layers) {
  NamedTensors trained;
  for (const auto& item : model.named_parameters())
    if (is_trained(item.key(), direction, frozen_encoder_layers))
      trained.emplace_back(item.key(), item.value());
  return trained;
}

UpstreamRates::UpstreamRates(double learning_rate, double initial_rate, int64_t warmup_steps,
                             int64_t train_steps)
    : learning_rate_(learning_rate),
      initial_rate_(initial_rate),
      warmup_steps_(warmup_steps),
      cosine_("CosineAnnealingLR", {{"T_max", train_steps}}),
      rate_(learning_rate) {}

double UpstreamRates::rate(int64_t step) {
  if (step < step_) {
    step_ = -1;
    rate_ = learning_rate_;
  }
  while (step_ < step) {
    ++step_;
    if (step_ < warmup_steps_)
      rate_ = initial_rate_ + (learning_rate_ - initial_rate_) * static_cast<double>(step_) /
                                  static_cast<double>(warmup_steps_);
    else
      rate_ = cosine_.rate(step_ - warmup_steps_ + 1, rate_, learning_rate_);
  }
  return rate_;
}

}  // namespace melete::spear_tts

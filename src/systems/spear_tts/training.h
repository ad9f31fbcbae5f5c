// Which weights each of SPEAR-TTS's three trainings moves, and the learning rates that spear-tts-pytorch
// uses.
#pragma once

#include <cstdint>

#include "systems/spear_tts/text_to_semantic.h"
#include "train/optimiser.h"
#include "train/upstream_schedule.h"

namespace melete::spear_tts {

// Speech to speech (pretraining) moves everything. Speech to text (back-translation) keeps what it has
// learned to hear: the speech embedding and the encoder. Text to speech keeps what it has learned to say,
// speech embedding and decoder, and of the encoder the first so many layers; an early exit learns.
bool is_trained(const std::string& name, const Direction& direction, int64_t frozen_encoder_layers);
NamedTensors trained_parameters(TextToSemanticImpl& model, const Direction& direction,
                                int64_t frozen_encoder_layers);

// The rates that spear-tts-pytorch's trainers really use: a warm-up that stops one step short of the rate,
// then a cosine that goes on from there by recursion; past its end it climbs again.
class UpstreamRates {
 public:
  UpstreamRates(double learning_rate, double initial_rate, int64_t warmup_steps, int64_t train_steps);
  double rate(int64_t step);  // in force in that optimiser step, counted from 0

 private:
  double learning_rate_, initial_rate_;
  int64_t warmup_steps_;
  TorchScheduler cosine_;
  int64_t step_ = -1;
  double rate_;
};

}  // namespace melete::spear_tts

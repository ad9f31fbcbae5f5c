// MuLaN (Huang et al. 2022): sound and words in one space. Two towers, a head for each, and the contrastive
// loss that brings pairs together.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <functional>
#include <vector>

#include "losses/contrastive.h"
#include "systems/musiclm/audio_tower.h"
#include "systems/musiclm/text_tower.h"

namespace melete::musiclm {

struct MulanConfig {
  int64_t sample_rate_hz = 16000;
  int64_t dim = 128;  // of the joint space
  AudioTowerConfig audio;
  TextTowerConfig text;
  ContrastConfig contrast;
  // Layers of both towers that are held against each other, too; 0: none, -1: as many as both have before
  // their last.
  int64_t contrast_layers = 0;
};
void describe(Schema& schema, MulanConfig& config);

// `count` layer numbers spread evenly over a tower of that depth, its last layer left out.
std::vector<int64_t> spread_layers(int64_t count, int64_t depth);

// Unit vectors of a batch.
struct Latents {
  at::Tensor values;  // [batch, dim]
  at::Tensor layers;  // [contrast layers, batch, dim], undefined where there are none
};

struct PairLatents {
  Latents audio, text;
};

struct MulanLosses {
  at::Tensor total;
  at::Tensor contrast;  // of the joint space
  at::Tensor layers;    // between layers; undefined where there are none
};

struct MulanImpl : torch::nn::Module {
  explicit MulanImpl(const MulanConfig& config);

  // plan and draws as in the towers: none in evaluation
  Latents embed_audio(const AudioInput& input, const AudioPlan* plan = nullptr, Draws* draws = nullptr);
  Latents embed_text(const TextInput& input, Draws* draws = nullptr);

  // In training: what the draws say, whole or (chunk > 0) in chunks of so many rows, of which only the
  // results are kept, so that large batches need little memory. Both are the same to rounding, without
  // dropout.
  PairLatents embed_pairs(const AudioInput& audio, const TextInput& text, Draws* draws, int64_t chunk = 0);

  // all: latents of all processes, gathered with gradients, this one's rows beginning at first_row; none:
  // alone. Added up over processes it is the loss of the whole batch.
  MulanLosses losses(const PairLatents& own, const PairLatents* all = nullptr, int64_t first_row = 0);

  const MulanConfig& config() const { return config_; }
  int64_t contrast_layers() const { return static_cast<int64_t>(audio_layers_.size()); }
  const std::vector<int64_t>& audio_layers() const { return audio_layers_; }
  const std::vector<int64_t>& text_layers() const { return text_layers_; }

  AudioTower audio{nullptr};
  TextTower text{nullptr};
  torch::nn::Linear audio_head{nullptr}, text_head{nullptr};
  Contrast contrast{nullptr};
  LayerContrast layer_contrast{nullptr};  // empty without contrast layers

 private:
  MulanConfig config_;
  std::vector<int64_t> audio_layers_, text_layers_;
};
TORCH_MODULE(Mulan);

}  // namespace melete::musiclm

// MuLaN's audio tower: patches of a spectrogram through a transformer (Gong et al. 2021), averaged.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <string>
#include <vector>

#include "nn/position_bias.h"
#include "systems/musiclm/patch_grid.h"
#include "systems/musiclm/spec_augment.h"
#include "systems/musiclm/spectrogram.h"
#include "systems/musiclm/tower_transformer.h"

namespace melete::musiclm {

struct AudioTowerConfig {
  TowerTransformerConfig transformer;
  std::string input = "wave";  // wave; frames: spectrograms [frames, bins]; bins: spectrograms [bins, frames]
  SpectrogramConfig spectrogram;
  std::vector<int64_t> patch = {16, 16};  // bins, frames
  SpecAugmentConfig augment;
  double patch_dropout = 0.25;  // in training: share of the patches that are left out
};
void describe(Schema& schema, AudioTowerConfig& config);

struct AudioInput {
  at::Tensor audio;    // [batch, samples], or spectrograms [batch, frames, bins] or [batch, bins, frames]
  at::Tensor lengths;  // [batch] int64: samples or frames of each; undefined: all are whole

  int64_t batch() const { return audio.size(0); }
  AudioInput rows(int64_t begin, int64_t end) const;
};

// What training does to a batch at random, drawn before, so that rows can be run apart from each other.
struct AudioPlan {
  SpecAugmentation augment;
  at::Tensor patch_order;  // [batch, patches]: the patches with the highest values are kept; undefined: all

  AudioPlan rows(int64_t begin, int64_t end) const;
};

struct AudioTowerImpl : torch::nn::Module {
  explicit AudioTowerImpl(const AudioTowerConfig& config);

  AudioPlan plan(const AudioInput& input, Draws& draws) const;
  // Without a plan nothing is augmented or left out; draws are for dropout. Silence that fills up a shorter
  // recording changes nothing.
  TowerOutput forward(const AudioInput& input, const AudioPlan* plan = nullptr, Draws* draws = nullptr);

  // The steps of forward, for tests: [batch, bins, frames], and [batch, bands, columns, dim].
  at::Tensor spectrogram(const AudioInput& input) const;
  at::Tensor embed_patches(const at::Tensor& spectrogram);
  // [n, heads, n] for these patches [n] of a grid
  at::Tensor position_bias_of(const PatchGrid& grid, const at::Tensor& patches);

  int64_t shortest() const;  // samples (or frames) that make a patch
  const AudioTowerConfig& config() const { return config_; }

  Norm patch_norm{nullptr};
  torch::nn::Linear patch_projection{nullptr};
  Norm token_norm{nullptr};
  BiasNetwork position_bias{nullptr};
  TowerTransformer transformer{nullptr};
  Norm norm{nullptr};

 private:
  struct Tokens;
  PatchGrid grid_of(int64_t bins, int64_t frames) const;
  int64_t frames(int64_t length) const;
  int64_t room(const AudioInput& input) const;                    // frames of the longest that fits in
  std::vector<int64_t> frames_of(const AudioInput& input) const;  // of each row
  Tokens tokens(const at::Tensor& embedded, const PatchGrid& grid, const std::vector<int64_t>& columns,
                const AudioPlan* plan);

  AudioTowerConfig config_;
};
TORCH_MODULE(AudioTower);

}  // namespace melete::musiclm

// SpecAugment: the stretch stretches, masks leave most of what there is, and nothing of it outside training.
#include <gtest/gtest.h>
#include <torch/utils.h>

#include <set>

#include "nn/draws.h"
#include "systems/musiclm/mulan.h"

namespace melete::musiclm {
namespace musiclm_augment_test {

constexpr int64_t kBins = 65;

SpecAugmentation no_masks(int64_t batch, double speed) {
  const at::Tensor nothing = at::zeros({batch}, at::kLong);
  return {speed, nothing, nothing, nothing, nothing};
}

// Bins and frames of a row that are blank throughout, of a spectrogram that is 1 everywhere.
std::pair<int64_t, int64_t> blank(const at::Tensor& row) {
  return {(row.sum(1) == 0).sum().item<int64_t>(), (row.sum(0) == 0).sum().item<int64_t>()};
}

TEST(SpecAugment, FasterSoundIsShorterAndSlowerSoundLosesItsEnd) {
  EXPECT_EQ(stretched_frames(100, 2), 50);
  EXPECT_EQ(stretched_frames(101, 2), 51);
  EXPECT_EQ(stretched_frames(100, 0.5), 100);
  // Frame i holds i: what stands at place p of the stretched one was at p * speed.
  const at::Tensor ramp = at::arange(40, at::kFloat).expand({2, 3, 40}).contiguous();
  const at::Tensor fast = augment(ramp, no_masks(2, 2)), slow = augment(ramp, no_masks(2, 0.5));
  EXPECT_TRUE(at::allclose(fast, (at::arange(20, at::kFloat) * 2).expand({2, 3, 20})));
  EXPECT_TRUE(at::allclose(slow, (at::arange(40, at::kFloat) * 0.5).expand({2, 3, 40})));
  // A row that ended at frame 10 ends at frame 5, and silence stays silent.
  at::Tensor short_row = at::ones({1, 3, 40});
  short_row.slice(2, 10).zero_();
  EXPECT_EQ(augment(short_row, no_masks(1, 2)).sum().item<double>(), 3 * 5);
}

TEST(SpecAugment, SpeedsAreDrawnBothWays) {
  SpecAugmentConfig config;
  double slowest = 1, fastest = 1;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SeededDraws draws(seed);
    const double speed = draw_augmentation(config, kBins, {100}, draws).speed;
    slowest = std::min(slowest, speed);
    fastest = std::max(fastest, speed);
  }
  EXPECT_GE(slowest, 0.8);
  EXPECT_LE(fastest, 1.25);
  EXPECT_LT(slowest, 0.85);
  EXPECT_GT(fastest, 1.18);
  config.stretch = 1;
  SeededDraws draws(1);
  EXPECT_EQ(draw_augmentation(config, kBins, {100}, draws).speed, 1);
}

// The defaults are 80 bins and 80 frames; here are 65 bins, and as few as 6 frames.
TEST(SpecAugment, MasksNeverBlankMoreThanTheirShare) {
  SpecAugmentConfig config;
  config.stretch = 1;
  const std::vector<int64_t> frames = {200, 30, 6};
  std::set<int64_t> bands, stretches;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SeededDraws draws(seed);
    const SpecAugmentation how = draw_augmentation(config, kBins, frames, draws);
    const at::Tensor left = augment(at::ones({3, kBins, 200}), how);
    for (int64_t row = 0; row < 3; ++row) {
      const int64_t own = frames[static_cast<size_t>(row)];
      const auto [band, stretch] = blank(left[row].slice(1, 0, own));
      EXPECT_LE(band, kBins / 2);
      EXPECT_LE(stretch, std::min<int64_t>(80, own / 2));
      bands.insert(band);
      if (row == 0) stretches.insert(stretch);
      EXPECT_EQ(blank(left[row]).second, stretch) << "a row is blanked where it has sound";
    }
  }
  // All widths come up, of hardly any frames and nearly the most of them.
  EXPECT_TRUE(bands.count(0) && bands.count(kBins / 2));
  EXPECT_TRUE(*stretches.begin() < 5 && *stretches.rbegin() > 75);
}

TEST(SpecAugment, UpstreamsMasksBlankEverythingNowAndThen) {
  SpecAugmentConfig config;
  config.as_upstream = true;
  bool everything = false;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SeededDraws draws(seed);
    const SpecAugmentation how = draw_augmentation(config, kBins, {100, 100}, draws);
    EXPECT_EQ(how.speed, 1);
    EXPECT_TRUE(at::equal(how.first_bin[0], how.first_bin[1]));
    everything |= augment(at::ones({2, kBins, 100}), how).sum().item<double>() == 0;
  }
  EXPECT_TRUE(everything);
}

MulanConfig small() {
  MulanConfig config;
  config.dim = 12;
  for (TowerTransformerConfig* tower : {&config.audio.transformer, &config.text.transformer}) {
    tower->dim = 32;
    tower->depth = 1;
    tower->heads = 1;
    tower->head_dim = 32;
  }
  config.audio.spectrogram = {128, 128, 64};
  config.audio.patch_dropout = 0;
  config.text.vocabulary = 50;
  config.text.window = 16;
  return config;
}

Mulan model_of(const MulanConfig& config) {
  torch::manual_seed(4);
  Mulan model(config);
  model->eval();
  return model;
}

TEST(SpecAugment, OnlyTrainingHearsIt) {
  const at::NoGradGuard no_grad;
  MulanConfig plain = small();
  plain.audio.augment.stretch = 1;
  plain.audio.augment.frequency_mask = plain.audio.augment.time_mask = 0;
  Mulan augmented = model_of(small()), as_it_is = model_of(plain);
  const AudioInput sound{0.1 * at::randn({3, 4000}), {}};
  const at::Tensor heard = as_it_is->embed_audio(sound).values;
  EXPECT_TRUE(at::equal(augmented->embed_audio(sound).values, heard));
  SeededDraws draws(3);
  const TextInput text{at::randint(2, 50, {3, 4}), {}};
  const at::Tensor trained = augmented->embed_pairs(sound, text, &draws).audio.values;
  EXPECT_GT((trained - heard).abs().max().item<double>(), 1e-3);
  EXPECT_TRUE(at::equal(as_it_is->embed_pairs(sound, text, &draws).audio.values, heard));
}

// accept_spec: the same picture, time first or bins first, is the same sound; so is what the wave becomes.
TEST(AudioTower, TakesSpectrogramsInEitherOrder) {
  const at::NoGradGuard no_grad;
  Mulan from_wave = model_of(small());
  MulanConfig config = small();
  config.audio.input = "frames";
  Mulan from_frames = model_of(config);
  config.audio.input = "bins";
  Mulan from_bins = model_of(config);
  const at::Tensor wave = 0.1 * at::randn({2, 4000}), lengths = at::tensor({4000, 2600}, at::kLong);
  const at::Tensor picture = from_wave->audio->spectrogram({wave, lengths});  // [batch, bins, frames]
  const at::Tensor frames = at::tensor({picture.size(2), config.audio.spectrogram.frames(2600)}, at::kLong);
  const at::Tensor heard = from_wave->embed_audio({wave, lengths}).values;
  EXPECT_TRUE(at::allclose(from_bins->embed_audio({picture, frames}).values, heard, 0, 1e-5));
  EXPECT_TRUE(at::allclose(from_frames->embed_audio({picture.transpose(1, 2).contiguous(), frames}).values,
                           heard, 0, 1e-5));
  EXPECT_ANY_THROW(from_bins->embed_audio({wave, lengths}));
}

}  // namespace musiclm_augment_test
}  // namespace melete::musiclm

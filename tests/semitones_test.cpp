#include "nn/semitones.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/base/error.h"
#include "pretrained/kmeans_tokenizer.h"

namespace melete {
namespace semitones_test {

constexpr int64_t kRate = 16000;

at::Tensor tone(double hz, double amplitude, int64_t samples) {
  return (amplitude *
          at::sin(at::arange(samples, at::kDouble) * (2 * M_PI * hz / static_cast<double>(kRate))))
      .to(at::kFloat)
      .unsqueeze(0);
}

TEST(Semitones, ANoteSoundsInItsOwnColumn) {
  SemitonesConfig config;
  config.fold = false;
  const Semitones semitones(config);
  const at::Tensor hz = semitones.frequencies_hz();
  for (int64_t note = 0; note < semitones.dim(); note += 7) {
    const at::Tensor frames = semitones(tone(hz[note].item<double>(), 0.3, 2 * kRate));
    ASSERT_EQ(frames.sizes(), at::IntArrayRef({1, 16, 48}));
    EXPECT_TRUE(at::allclose(frames.norm(2, -1), at::ones({1, 16})));
    for (int64_t t = 2; t < 14; ++t) EXPECT_EQ(frames[0][t].argmax().item<int64_t>(), note) << "frame " << t;
  }
}

TEST(Semitones, OctavesAreOnePitchClass) {
  const Semitones semitones(SemitonesConfig{});
  const at::Tensor low = semitones(tone(220, 0.3, kRate)), high = semitones(tone(880, 0.05, kRate));
  EXPECT_EQ(low[0][4].argmax().item<int64_t>(), 0);  // A, as the lowest note
  EXPECT_LT((low[0][4] - high[0][4]).abs().max().item<double>(), 0.02);
  const at::Tensor fifth = semitones(tone(330, 0.3, kRate));
  EXPECT_EQ(fifth[0][4].argmax().item<int64_t>(), 7);
}

TEST(Semitones, SilenceIsNotMusic) {
  const Semitones semitones(SemitonesConfig{});
  EXPECT_EQ(semitones(at::zeros({1, kRate})).abs().max().item<double>(), 0);
  SemitonesConfig config;
  config.fold = false;
  EXPECT_LT(Semitones(config)(tone(440, 1e-5, kRate)).norm(2, -1).max().item<double>(), 0.2);
}

TEST(Semitones, RefusesNotesAboveHalfTheRate) {
  SemitonesConfig config;
  config.sample_rate_hz = 2000;
  EXPECT_THROW(Semitones{config}, Error);
  config.octaves = 3;
  EXPECT_NO_THROW(Semitones{config});
}

TEST(Semitones, ATokenizerIsBuiltAgainFromItsFile) {
  SemitonesConfig config;
  config.hop = 1600;
  const KmeansTokenizer tokenizer(std::make_unique<SemitoneFeatures>(config), Centroids{at::eye(12), {}, {}});
  const auto again = make_kmeans_tokenizer(tokenizer.config(), tokenizer.tensors(), "test");
  EXPECT_EQ(again->identity(), tokenizer.identity());
  EXPECT_EQ(again->samples_per_token(), 1600);
  const at::Tensor ids = again->tokenize(tone(330, 0.3, kRate));
  EXPECT_EQ(ids.size(1), 10);
  EXPECT_EQ(ids[0][5].item<int64_t>(), 7);
}

}  // namespace semitones_test
}  // namespace melete

// Sound as levels of tones and noise and back.
#include "nn/tone_bank.h"

#include <gtest/gtest.h>
#include <torch/utils.h>

#include <cmath>

#include "core/base/error.h"

namespace melete {
namespace tone_bank_test {

constexpr int64_t kRate = 16000;

double hz_of(double note) {
  return 440 * std::exp2((note - 69) / 12);
}

// So many frames of a sound that goes on all the time, with what the bank listens to around them.
at::Tensor around(const ToneBankConfig& config, int64_t frames, double hz, double amplitude) {
  const int64_t samples = 2 * config.reach() - config.hop + frames * config.hop;
  const at::Tensor time = at::arange(samples, at::kDouble) / static_cast<double>(kRate);
  return (amplitude * at::sin(2 * M_PI * hz * time)).to(at::kFloat).unsqueeze(0);
}

TEST(ToneBank, ASineIsItsNoteAtItsLevel) {
  const ToneBankConfig config;
  const ToneBank bank(config);
  const double level = 0.2 * std::sqrt(static_cast<double>(config.hop) / 2);
  for (const int64_t note : {45, 52, 60, 69, 88, 110}) {
    const at::Tensor found = bank.analyse(around(config, 5, hz_of(static_cast<double>(note)), 0.2));
    ASSERT_EQ(found.sizes(), at::IntArrayRef({1, 5, config.tones + config.noise_bands}));
    const at::Tensor tones = found.narrow(2, 0, config.tones).flatten(0, 1).mean(0);
    EXPECT_EQ(tones.argmax().item<int64_t>(), note - config.lowest_note) << note;
    EXPECT_NEAR(tones.max().item<double>(), level, 0.03 * level) << note;
    // The bands share its power among them.
    const double bands =
        found.narrow(2, config.tones, config.noise_bands).square().sum(2).mean().item<double>();
    if (note > 52) {
      EXPECT_NEAR(std::sqrt(bands), level, 0.1 * level) << note;
    }
  }
}

// From 130 Hz on, which is what a quarter of a second can tell.
TEST(ToneBank, TellsANoteFromTheNext) {
  const ToneBankConfig config;
  const ToneBank bank(config);
  for (const int64_t note : {48, 60, 84}) {
    const at::Tensor tones = bank.analyse(around(config, 1, hz_of(static_cast<double>(note)), 0.2))
                                 .flatten()
                                 .narrow(0, 0, config.tones);
    const int64_t i = note - config.lowest_note;
    for (const int64_t beside : {i - 1, i + 1})
      EXPECT_LT(tones[beside].item<double>(), 0.1 * tones[i].item<double>()) << note;
  }
}

TEST(ToneBank, LevelsComeBackAsTheyWereSaid) {
  const ToneBankConfig config;
  const ToneBank bank(config);
  at::Tensor levels = at::zeros({2, 120, bank.levels()});
  levels.select(2, 36).fill_(1);                    // A at 440 Hz
  levels[1].select(1, config.tones + 20).fill_(2);  // and a band of noise in the second row
  const at::Tensor wave = bank.synthesise(levels, 7);
  ASSERT_EQ(wave.sizes(), at::IntArrayRef({2, 120 * config.hop}));
  const at::Tensor found = bank.analyse(wave).mean(1);
  EXPECT_NEAR(found[0][36].item<double>(), 1, 0.02);
  EXPECT_EQ(found[0].narrow(0, 0, config.tones).argmax().item<int64_t>(), 36);
  EXPECT_NEAR(found[1][36].item<double>(), 1, 0.02);
  EXPECT_NEAR(found[1][config.tones + 20].item<double>(), 2, 0.6);  // its neighbours hear some of it
  EXPECT_EQ(found[1].narrow(0, config.tones, config.noise_bands).argmax().item<int64_t>(), 20);
}

TEST(ToneBank, ChunksMeetWithoutASeam) {
  const ToneBankConfig config{8000, 50, 45, 48, 8};
  const ToneBank bank(config);
  torch::manual_seed(2);
  const at::Tensor levels = at::rand({2, 300, bank.levels()});
  const at::Tensor whole = bank.synthesise(levels, 5);
  at::Tensor before;
  const at::Tensor first = bank.synthesise(levels.narrow(1, 0, 260), 5, &before);
  const at::Tensor second = bank.synthesise(levels.narrow(1, 260, 40), 265, &before);
  EXPECT_TRUE(at::allclose(at::cat({first, second}, 1), whole, 1e-5, 1e-5));
}

TEST(ToneBank, GradientsReachTheLevels) {
  const ToneBankConfig config{8000, 50, 45, 48, 8};
  const ToneBank bank(config);
  torch::manual_seed(3);
  const at::Tensor levels = at::rand({1, 4, bank.levels()}).set_requires_grad(true);
  const at::Tensor weights = at::randn({1, 4 * config.hop});
  (bank.synthesise(levels, 0) * weights).sum().backward();
  // It is linear: the change of one level is its gradient times that change.
  at::Tensor more = levels.detach().clone();
  more[0][2][10] += 1;
  const double change =
      ((bank.synthesise(more, 0) - bank.synthesise(levels.detach(), 0)) * weights).sum().item<double>();
  EXPECT_NEAR(levels.grad()[0][2][10].item<double>(), change, 1e-3);
}

TEST(ToneBank, RefusesWhatItCannotPlay) {
  EXPECT_THROW(ToneBank({8000, 50, 45, 72, 8}), Error);
  EXPECT_THROW(ToneBank(ToneBankConfig{}).analyse(at::zeros({1, 5001})), Error);
}

}  // namespace tone_bank_test
}  // namespace melete

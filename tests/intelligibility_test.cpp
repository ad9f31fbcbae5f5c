// Figures of decoded sound, by what their papers say of them.
#include "losses/intelligibility.h"

#include <gtest/gtest.h>
#include <torch/utils.h>

#include <cmath>

#include "core/base/error.h"
#include "gradient_check.h"
#include "losses/quality.h"
#include "losses/sound_figures.h"

namespace melete {
namespace intelligibility_test {

constexpr int64_t kRateHz = 16000;

at::Tensor seconds_axis(double seconds) {
  return at::arange(static_cast<int64_t>(seconds * kRateHz), at::kDouble) / static_cast<double>(kRateHz);
}

// Like speech: harmonics of a gliding pitch under formants that move, syllables four times a second, and
// hisses between them.
at::Tensor like_speech(double seconds, int64_t seed) {
  torch::manual_seed(static_cast<uint64_t>(seed));
  const at::Tensor time = seconds_axis(seconds);
  const at::Tensor phase = 2 * M_PI * (120 * time + 6 * at::sin(2 * M_PI * 0.7 * time));
  at::Tensor voice = at::zeros_like(time);
  for (int harmonic = 1; harmonic <= 40; ++harmonic) {
    const double hz = 120.0 * harmonic;
    at::Tensor gain = at::zeros_like(time);
    for (const double formant : {500.0, 1500.0, 2500.0}) {
      const at::Tensor centre = formant * (1 + 0.3 * at::sin(2 * M_PI * (1.3 + formant / 4000) * time));
      gain = gain + at::exp(-((centre - hz) / 200).square());
    }
    voice = voice + gain * at::sin(harmonic * phase);
  }
  const at::Tensor syllable = at::clamp_min(at::sin(2 * M_PI * 4 * time), 0);
  const at::Tensor hiss =
      at::randn(time.sizes(), at::kDouble) * at::clamp_min(-at::sin(2 * M_PI * 4 * time) - 0.5, 0);
  return (0.1 * (voice * syllable + 0.3 * hiss)).to(at::kFloat);
}

at::Tensor with_noise(const at::Tensor& clean, const at::Tensor& noise, double snr_db) {
  const double gain = (clean.norm() / noise.norm()).item<double>() * std::pow(10, -snr_db / 20);
  return clean + gain * noise;
}

TEST(Intelligibility, EqualSoundsAreOneAtAnyLevel) {
  const at::Tensor clean = like_speech(2, 1);
  for (const double level : {1.0, 0.05, 3.0}) {
    const auto found = intelligibility(clean, level * clean, kRateHz);
    ASSERT_TRUE(found);
    EXPECT_NEAR(found->stoi, 1, 1e-6);
    EXPECT_NEAR(found->extended, 1, 1e-6);
  }
}

TEST(Intelligibility, FallsWithNoiseToNothing) {
  const at::Tensor clean = like_speech(4, 2);
  torch::manual_seed(3);
  const at::Tensor noise = at::randn_like(clean);
  double stoi = 1, extended = 1;
  for (const double snr_db : {20.0, 10.0, 5.0, 0.0, -5.0, -10.0, -20.0}) {
    const auto found = intelligibility(clean, with_noise(clean, noise, snr_db), kRateHz);
    ASSERT_TRUE(found);
    EXPECT_LT(found->stoi, stoi) << snr_db;
    EXPECT_LT(found->extended, extended) << snr_db;
    stoi = found->stoi, extended = found->extended;
  }
  EXPECT_LT(extended, 0.15);
  const auto unrelated = intelligibility(clean, like_speech(4, 9).flip(0), kRateHz);
  EXPECT_LT(unrelated->extended, 0.3);
}

TEST(BandShapes, EqualSoundsAreNoLossAtAnyLevelAndNoiseIsMore) {
  const BandShapeLoss loss(kRateHz);
  const at::Tensor clean = like_speech(2, 1).unsqueeze(0);
  EXPECT_LT(loss(clean, clean).item<double>(), 1e-9);
  EXPECT_LT(loss(clean, 0.3 * clean).item<double>(), 1e-4);
  torch::manual_seed(3);
  const at::Tensor noise = at::randn_like(clean);
  double before = 0;
  for (const double snr_db : {20.0, 10.0, 0.0, -10.0}) {
    const double now = loss(clean, with_noise(clean, noise, snr_db)).item<double>();
    EXPECT_GT(now, before + 0.02) << snr_db;
    before = now;
  }
  EXPECT_GT(loss(clean, noise).item<double>(), 0.6);
}

// What is learned is what is measured: where ESTOI says that more is lost, so does the loss.
TEST(BandShapes, FollowTheFigure) {
  const BandShapeLoss loss(10000);
  const at::Tensor clean = like_speech(4, 2);
  torch::manual_seed(4);
  const at::Tensor noise = at::randn_like(clean);
  for (const double snr_db : {15.0, 5.0, 0.0}) {
    const at::Tensor heard = with_noise(clean, noise, snr_db);
    const double lost = 1 - intelligibility(clean, heard, 10000)->extended;
    EXPECT_NEAR(loss(clean.unsqueeze(0), heard.unsqueeze(0)).item<double>(), lost, 0.1) << snr_db;
  }
}

TEST(BandShapes, GradientsAreRightAndFiniteInSilence) {
  const BandShapeLoss loss(kRateHz);
  const at::Tensor clean = like_speech(0.6, 5).unsqueeze(0);
  const at::Tensor heard = with_noise(clean, noise(clean.sizes(), 6), 10);
  expect_gradient([&](const at::Tensor& x) { return loss(clean, x); }, heard, 7, 1e-4, 0.03);
  const at::Tensor silence = at::zeros_like(clean).requires_grad_();
  const at::Tensor gradient = torch::autograd::grad({loss(clean, silence)}, {silence})[0];
  EXPECT_TRUE(gradient.isfinite().all().item<bool>());
  EXPECT_LT(loss(at::zeros_like(clean), at::zeros_like(clean)).item<double>(), 1e-9);
  // Shorter than a segment is one segment.
  EXPECT_TRUE(loss(clean.narrow(1, 0, 3200), heard.narrow(1, 0, 3200)).isfinite().item<bool>());
}

// The reason for ESTOI: where the noise pauses, listeners hear words through the gaps. STOI, which averages
// correlations of single bands over time, puts the two noises the other way round or close together.
TEST(Intelligibility, TheExtendedFormGivesCreditForGapsInTheNoise) {
  const at::Tensor clean = like_speech(6, 4);
  torch::manual_seed(5);
  const at::Tensor noise = at::randn_like(clean);
  const at::Tensor gaps = (at::sin(2 * M_PI * 5 * seconds_axis(6)) > 0).to(at::kFloat);
  const auto steady = intelligibility(clean, with_noise(clean, noise, -5), kRateHz);
  const auto gated = intelligibility(clean, with_noise(clean, noise * gaps, -5), kRateHz);
  ASSERT_TRUE(steady && gated);
  EXPECT_GT(gated->extended - steady->extended, gated->stoi - steady->stoi);
  EXPECT_GT(gated->extended, steady->extended);
}

TEST(Intelligibility, SeesWhatSiSdrDoesNot) {
  // Only what lies below 600 Hz: most of the energy, few of the words.
  const at::Tensor clean = like_speech(3, 6);
  const at::Tensor spectrum = at::fft_rfft(clean);
  at::Tensor low = spectrum.clone();
  low.narrow(0, 600 * 3, low.size(0) - 600 * 3).fill_(0);
  const at::Tensor dull = at::fft_irfft(low, clean.size(0));
  const auto found = intelligibility(clean, dull, kRateHz);
  ASSERT_TRUE(found);
  EXPECT_LT(found->extended, 0.7);
}

TEST(Intelligibility, RateChangesLittleAndSilenceIsNotCounted) {
  const at::Tensor clean = like_speech(3, 7);
  torch::manual_seed(8);
  const at::Tensor noisy = with_noise(clean, at::randn_like(clean), 5);
  const auto plain = intelligibility(clean, noisy, kRateHz);
  const at::Tensor quiet = at::zeros({2 * kRateHz});
  const auto with_pause = intelligibility(at::cat({clean, quiet}), at::cat({noisy, quiet}), kRateHz);
  ASSERT_TRUE(plain && with_pause);
  EXPECT_NEAR(plain->extended, with_pause->extended, 0.01);
  EXPECT_FALSE(intelligibility(clean.narrow(0, 0, 4000), noisy.narrow(0, 0, 4000), kRateHz));
  EXPECT_FALSE(intelligibility(at::zeros({kRateHz}), noisy.narrow(0, 0, kRateHz), kRateHz));
  EXPECT_THROW(intelligibility(clean, noisy.narrow(0, 0, 100), kRateHz), Error);
}

TEST(SteadyTones, FindsLinesThatWereAddedAndNothingElse) {
  const at::Tensor clean = like_speech(4, 11).unsqueeze(0);
  torch::manual_seed(12);
  const at::Tensor noise = 0.003 * at::randn_like(clean);
  const at::Tensor time = seconds_axis(4);
  at::Tensor lines = at::zeros_like(time);
  for (int k = 1; k < 8; ++k) lines = lines + at::sin(2 * M_PI * 1000 * k * time);
  lines = 0.003 * std::sqrt(2.0 / 7) * lines.to(at::kFloat).unsqueeze(0);  // as loud as the noise
  EXPECT_EQ(*steady_tones(clean, clean, kRateHz), 0);
  EXPECT_LT(*steady_tones(clean, 0.3 * clean, kRateHz), 0.5);
  const double of_noise = *steady_tones(clean, clean + noise, kRateHz);
  const double of_lines = *steady_tones(clean, clean + noise + lines, kRateHz);
  EXPECT_GT(of_lines, of_noise + 8);
  EXPECT_LT(*steady_tones(clean + lines, clean + lines + noise, kRateHz), of_noise + 2);  // they were there
  EXPECT_FALSE(steady_tones(clean.narrow(1, 0, 4000), clean.narrow(1, 0, 4000), kRateHz));
}

TEST(BandDistances, SayWhere) {
  const at::Tensor clean = like_speech(2, 13).unsqueeze(0);
  const at::Tensor spectrum = at::fft_rfft(clean);
  at::Tensor low = spectrum.clone();
  low.narrow(1, 4300 * 2, low.size(1) - 4300 * 2).fill_(0);  // beyond what windows smear over 4 kHz
  const at::Tensor distance = band_distances(clean, at::fft_irfft(low, clean.size(1)), kRateHz);
  ASSERT_EQ(distance.size(0), 4);
  for (int64_t band = 0; band < 3; ++band) EXPECT_LT(distance[band].item<double>(), 1) << band;
  EXPECT_GT(distance[3].item<double>(), 10);
  EXPECT_EQ(band_distances(clean, clean, kRateHz).sum().item<double>(), 0);
}

TEST(FineMelDistance, SeesASmearedStartThatTheLongWindowBlurs) {
  torch::manual_seed(14);
  at::Tensor clicks = 1e-3 * at::randn({1, kRateHz});
  for (int64_t at = 1000; at < kRateHz - 400; at += 2000)
    clicks.narrow(1, at, 32).add_(0.5 * at::randn({1, 32}));
  const at::Tensor smeared =
      at::avg_pool1d(clicks.abs().unsqueeze(1), {257}, {1}, {128}).squeeze(1) * at::randn_like(clicks);
  const double fine = fine_mel_distance(clicks, smeared, kRateHz).item<double>();
  const double coarse = mel_distance(clicks, smeared, kRateHz).item<double>();
  EXPECT_GT(fine, coarse);
  EXPECT_EQ(fine_mel_distance(clicks, clicks, kRateHz).item<double>(), 0);
}

TEST(SoundFigures, MeansLeaveOutWhatHasNoValue) {
  const at::Tensor clean = like_speech(2, 15).unsqueeze(0);
  const at::Tensor brief = clean.narrow(1, 2000, 3000);
  FigureMeans means;
  means.add(sound_figures(clean, clean, kRateHz));
  means.add(sound_figures(brief, brief, kRateHz));
  for (const SoundFigure& figure : means.means()) {
    if (figure.name == "extended_stoi") {
      EXPECT_NEAR(figure.value, 1, 1e-6);
    }
    if (figure.name == "mel_distance") {
      EXPECT_EQ(figure.value, 0);
    }
  }
}

}  // namespace intelligibility_test
}  // namespace melete

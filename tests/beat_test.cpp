// Whether sounds that begin again after a beat are heard as such.
#include "losses/beat.h"

#include <gtest/gtest.h>
#include <torch/utils.h>

#include <cmath>

#include "core/base/error.h"
#include "core/base/random.h"
#include "systems/audiolm/scale_eval.h"

namespace melete {
namespace beat_test {

constexpr int64_t kRate = 16000;

// Decaying tones that begin at these seconds. [1, samples]
at::Tensor notes_at(const std::vector<double>& begins, double seconds) {
  at::Tensor wave = at::zeros({static_cast<int64_t>(seconds * kRate)});
  for (size_t i = 0; i < begins.size(); ++i) {
    const auto begin = static_cast<int64_t>(begins[i] * kRate);
    const at::Tensor time = at::arange(wave.size(0) - begin, at::kFloat) / kRate;
    const double hz = 220 * std::exp2(static_cast<double>(i % 5) / 6);
    wave.narrow(0, begin, time.size(0)) += 0.3 * at::exp(-6 * time) * at::sin(2 * M_PI * hz * time);
  }
  return wave.unsqueeze(0);
}

std::vector<double> every(double beat, double seconds) {
  std::vector<double> begins;
  for (double at = 0.1; at < seconds - 0.05; at += beat) begins.push_back(at);
  return begins;
}

double strength(const at::Tensor& wave, double beat) {
  return beat_strength(onset_strength(wave, kRate), beat).item<double>();
}

TEST(Beat, IsHeardWhereNotesComeAgain) {
  for (const double beat : {0.4, 0.57, 0.83}) {
    const at::Tensor wave = notes_at(every(beat, 4), 4);
    EXPECT_GT(strength(wave, beat), 0.8) << beat;
    EXPECT_LT(strength(wave, 0.8 * beat), 0.2) << beat;
    EXPECT_LT(strength(wave, 1.3 * beat), 0.2) << beat;
  }
}

TEST(Beat, NotesBetweenBeatsAreOfIt) {
  EXPECT_GT(strength(notes_at(every(0.3, 4), 4), 0.6), 0.8);
}

TEST(Beat, NotesAtRandomHaveNone) {
  double sum = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Rng rng(seed);
    std::vector<double> begins;
    for (double at = 0.1; at < 3.9; at += rng.uniform(0.15, 0.85)) begins.push_back(at);
    sum += strength(notes_at(begins, 4), 0.5);
  }
  EXPECT_LT(std::abs(sum / 20), 0.15);
}

TEST(Beat, LoudnessAndRowsBesideChangeNothing) {
  const at::Tensor regular = notes_at(every(0.5, 4), 4), other = notes_at({0.2, 0.9, 1.1, 2.5}, 4);
  const at::Tensor both = beat_strength(onset_strength(at::cat({0.01 * regular, other}), kRate), 0.5);
  EXPECT_NEAR(both[0].item<double>(), strength(regular, 0.5), 1e-3);
  EXPECT_NEAR(both[1].item<double>(), strength(other, 0.5), 1e-5);
}

TEST(Beat, SilenceHasNoneAndShortSoundsAreRefused) {
  EXPECT_EQ(strength(at::zeros({1, 4 * kRate}), 0.5), 0);
  EXPECT_THROW(strength(at::zeros({1, kRate}), 0.7), Error);
  EXPECT_THROW(onset_strength(at::zeros({kRate}), kRate), Error);
  EXPECT_THROW(onset_strength(at::zeros({1, 100}), kRate), Error);
}

// What the synthesizer says it beats is what is heard, without any drums.
TEST(Beat, SynthesizedPiecesKeepTheirs) {
  const auto pieces = tonal_pieces(7, 24, kRate, 4);
  std::vector<at::Tensor> waves;
  for (const TonalPiece& piece : pieces) waves.push_back(piece.wave);
  const FitToPiece beat = scale_figure("pieces", at::stack(waves), kRate, pieces).beat;
  std::printf("synthesized pieces: %.2f on their beat, %.2f on others', +- %.2f\n", beat.own, beat.others,
              beat.error);
  EXPECT_GT(beat.own, 0.3);
  EXPECT_GT(beat.own - beat.others, 5 * beat.error);
}

}  // namespace beat_test
}  // namespace melete

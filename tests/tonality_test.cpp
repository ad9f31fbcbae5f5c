// Which pitch classes sound, on tones whose pitch is known.
#include "losses/tonality.h"

#include <gtest/gtest.h>
#include <torch/utils.h>

#include <cmath>

#include "core/base/error.h"
#include "systems/audiolm/scale_eval.h"

namespace melete {
namespace tonality_test {

// A sum of tones with overtones, by MIDI number.
at::Tensor tones(const std::vector<double>& notes, int64_t rate_hz, double seconds = 1, int overtones = 1) {
  const at::Tensor time =
      at::arange(static_cast<int64_t>(seconds * static_cast<double>(rate_hz)), at::kDouble) /
      static_cast<double>(rate_hz);
  at::Tensor sum = at::zeros_like(time);
  for (const double note : notes)
    for (int k = 1; k <= overtones; ++k)
      sum += at::sin(time * (2 * M_PI * k * 440 * std::pow(2, (note - 69) / 12))) / (k * k);
  return (0.2 * sum).to(at::kFloat).unsqueeze(0);
}

TEST(Chroma, EveryNoteIsHeardAsItself) {
  for (const int64_t rate : {8000, 16000, 24000, 44100})
    for (int note = 46; note < 94; ++note)
      for (const double detuned : {-0.3, 0.0, 0.3})
        EXPECT_GT(chroma(tones({note + detuned}, rate, 0.6), rate)[0][note % 12].item<double>(), 0.95)
            << note << " at " << rate << " Hz";
}

TEST(Chroma, AChordIsItsNotesAndATransposedOneIsRotated) {
  const at::Tensor c_major = chroma(tones({60, 64, 67}, 16000), 16000)[0];
  for (const int pitch_class : {0, 4, 7}) EXPECT_NEAR(c_major[pitch_class].item<double>(), 1.0 / 3, 0.03);
  EXPECT_NEAR(c_major.sum().item<double>(), 1, 1e-5);
  const at::Tensor up = chroma(tones({63, 67, 70}, 16000), 16000)[0];
  EXPECT_TRUE(at::allclose(up.roll(-3), c_major, 0, 0.03));
}

TEST(Chroma, LoudnessAndRowsBesideChangeNothing) {
  const at::Tensor quiet = 0.01 * tones({57, 61, 64}, 16000, 1, 4), loud = tones({60}, 16000, 1, 4);
  const at::Tensor both = chroma(at::cat({quiet, loud}), 16000);
  EXPECT_TRUE(at::allclose(both[0], chroma(100 * quiet, 16000)[0], 0, 1e-3));
  EXPECT_TRUE(at::allclose(both[1], chroma(loud, 16000)[0], 0, 1e-5));
}

TEST(Chroma, NoiseHasNoScaleAndSilenceNoNotes) {
  torch::manual_seed(1);
  const at::Tensor noise = chroma(at::randn({1, 80000}), 16000)[0];
  EXPECT_LT(noise.max().item<double>(), 1.6 / 12);
  EXPECT_GT(noise.min().item<double>(), 0.5 / 12);
  EXPECT_EQ(chroma(at::zeros({2, 100}), 16000).abs().sum().item<double>(), 0);
  EXPECT_THROW(chroma(at::zeros({100}), 16000), Error);
  EXPECT_THROW(chroma(at::zeros({1, 100}), 2000), Error);
}

TEST(InScaleShare, CountsWhatIsInside) {
  const std::vector<int> c_major = {0, 2, 4, 5, 7, 9, 11};
  const at::Tensor melody = chroma(tones({60, 64, 67, 66}, 16000), 16000);  // three of C major and F sharp
  EXPECT_NEAR(in_scale_share(melody, c_major).item<double>(), 0.75, 0.03);
  EXPECT_NEAR(in_scale_share(melody, {}).item<double>(), 0, 1e-6);
  EXPECT_THROW(in_scale_share(melody, {12}), Error);
}

// What the synthesizer says it plays is what is heard.
TEST(InScaleShare, SynthesizedPiecesAreInTheirScale) {
  const auto pieces = tonal_pieces(7, 24, 16000, 3);
  std::vector<at::Tensor> waves;
  for (const TonalPiece& piece : pieces) {
    EXPECT_GE(piece.scale.size(), 5u);
    waves.push_back(piece.wave);
  }
  const ScaleFigure figure = scale_figure("pieces", at::stack(waves), 16000, pieces);
  std::printf("synthesized pieces: %.3f in their scale, %.3f in others'\n", figure.scale.own,
              figure.scale.others);
  EXPECT_GT(figure.scale.own, 0.85);
  EXPECT_LT(figure.scale.others, 0.65);
  EXPECT_GT(figure.scale.own - figure.scale.others, 10 * figure.scale.error);
}

}  // namespace tonality_test
}  // namespace melete

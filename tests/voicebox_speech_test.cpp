// From text to speech: the parts between the models.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/base/error.h"
#include "systems/vocos/griffin_lim.h"
#include "systems/voicebox/align_recordings.h"
#include "systems/voicebox/generation_speech.h"
#include "systems/voicebox/phoneme_frames.h"
#include "systems/voicebox/warped_distance.h"

namespace melete::voicebox {
namespace {

TEST(VoiceboxSpeech, AScriptIsSentencesAndPauses) {
  const auto script = read_script("Hello there. <break 0.5s>How are you? <break 20ms/>");
  ASSERT_EQ(script.size(), 4u);
  EXPECT_EQ(script[0].sentence, "Hello there.");
  EXPECT_DOUBLE_EQ(script[1].pause_seconds, 0.5);
  EXPECT_EQ(script[2].sentence, "How are you?");
  EXPECT_DOUBLE_EQ(script[3].pause_seconds, 0.02);
  EXPECT_THROW(read_script("a <break soon> b"), Error);
  EXPECT_THROW(read_script("  "), Error);
}

TEST(VoiceboxSpeech, ASpliceLeavesEverySampleOutsideUntouched) {
  std::vector<float> recording, made(70, 0.5f);
  for (int i = 0; i < 200; ++i) recording.push_back(std::sin(0.1f * static_cast<float>(i)));
  const auto result = splice(recording, made, 60, 100, 10);
  ASSERT_EQ(result.size(), 200u - 40u + 70u);
  EXPECT_TRUE(std::equal(recording.begin(), recording.begin() + 60, result.begin()));
  EXPECT_TRUE(std::equal(recording.begin() + 100, recording.end(), result.end() - 100));
  EXPECT_NEAR(result[60], recording[60], 0.06);  // seams begin with what was there
  EXPECT_NEAR(result[129], recording[99], 0.06);
  EXPECT_FLOAT_EQ(result[95], 0.5f);
  EXPECT_THROW(splice(recording, made, 100, 60, 10), Error);
}

TEST(VoiceboxSpeech, WarpedDistanceForgivesSpeedAndNothingElse) {
  const at::Tensor a = at::randn({20, 8}), other = at::randn({20, 8});
  EXPECT_EQ(warped_distance(a, a), 0);
  EXPECT_EQ(warped_distance(a, at::repeat_interleave(a, 3, 0)), 0);
  EXPECT_NEAR(warped_distance(a, other), warped_distance(other, a), 1e-6);
  EXPECT_GT(warped_distance(a, other), 0.5);
  EXPECT_GT(warped_distance(a, a.flip(0)), 0.5);
}

TEST(VoiceboxSpeech, IdsByFrameRepeatAsCounted) {
  EXPECT_TRUE(ids_by_frame({7, 3, 5}, {2, 0, 1}).equal(at::tensor({7, 7, 5}, at::kLong)));
}

TEST(VoiceboxSpeech, AlignerFramesDoNotDependOnLevelOrPadding) {
  MelFramesConfig config = speech_mel();
  const MelFrames mel(config);
  at::Tensor waves = 0.3 * at::randn({2, 8192});
  waves[1] = waves[0] * 0.5;
  const at::Tensor padded = at::constant_pad_nd(waves, {0, 4096});
  const AlignerFrames heard = aligner_frames(mel, padded, at::full({2}, 8192, at::kLong));
  EXPECT_EQ(heard.lengths[0].item<int64_t>(), 32);
  EXPECT_LT((heard.frames[0] - heard.frames[1]).abs().max().item<double>(), 1e-3);
  EXPECT_EQ(heard.frames[0].narrow(0, 32, 16).abs().max().item<double>(), 0);
  EXPECT_NEAR(heard.frames[0].narrow(0, 0, 32).mean().item<double>(), 0, 1e-4);
}

// A sound with few partials, moving: what Griffin-Lim can copy.
TEST(VoiceboxSpeech, GriffinLimGivesBackTheFramesItWasGiven) {
  const at::Tensor t = at::arange(16384, at::kFloat) / 16000;
  at::Tensor wave = at::zeros({1, 16384});
  for (const double hz : {180.0, 540.0, 1260.0})
    wave[0] += 0.2 * at::sin(2 * std::numbers::pi * (hz * t + 20 * t * t));
  for (const char* edges : {"same", "centre"}) {
    MelFramesConfig config = speech_mel();
    config.edges = edges;
    const MelGriffinLim features(config);
    const at::Tensor frames = features.encode(wave);
    EXPECT_EQ(frames.size(1), features.frames(16384));
    const at::Tensor copy = features.decode(frames);
    EXPECT_TRUE(copy.equal(features.decode(frames)));
    const at::Tensor again = features.encode(copy);
    const auto loud = frames.narrow(1, 4, 50) > -3;
    const double apart =
        (again.narrow(1, 4, 50) - frames.narrow(1, 4, 50)).masked_select(loud).abs().mean().item<double>();
    EXPECT_LT(apart, 0.35) << edges;
  }
}

TEST(VoiceboxSpeech, TimingErrorsAreOfWhatIsInBoth) {
  Timings found, known;
  found.list = {{"a.wav", {"_", "a", "."}, {0.1, 0.2, 0.5}}, {"b.wav", {"_", "."}, {0.1, 0.2}}};
  known.list = {{"a.wav", {"_", "a", "."}, {0.11, 0.24, 0.5}}};
  const TimingErrors errors = timing_errors(found, known);
  EXPECT_EQ(errors.recordings, 1);
  EXPECT_EQ(errors.ends, 2);
  EXPECT_NEAR(errors.mean_ms, 25, 1e-6);
  EXPECT_NEAR(errors.within_25_ms, 0.5, 1e-6);
  known.list[0].path = "c.wav";
  EXPECT_THROW(timing_errors(found, known), Error);
}

}  // namespace
}  // namespace melete::voicebox

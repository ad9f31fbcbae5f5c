// From text to speech: the parts between the models, and that the whole learns to speak.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <numbers>

#include "base/temporary_folder.h"
#include "cli/app.h"
#include "core/base/error.h"
#include "core/engine.h"
#include "data/base/synth_speech.h"
#include "generate/sampling.h"
#include "io/audio_tensor.h"
#include "systems/vocos/griffin_lim.h"
#include "systems/voicebox/align_recordings.h"
#include "systems/voicebox/generation_speech.h"
#include "systems/voicebox/phoneme_frames.h"
#include "systems/voicebox/warped_distance.h"

namespace melete::voicebox {
namespace {

namespace fs = std::filesystem;
using melete::testing::TemporaryFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

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

// Sentences by one voice with the times of their phonemes: folder.flac's and folder.jsonl.
Timings synthesized(const std::string& folder, int64_t count, uint64_t seed) {
  SynthOptions options;
  options.folder = folder;
  options.count = count;
  options.seed = seed;
  options.rate_hz = 16000;
  options.voice = "en-us+f3";
  options.timings = folder + ".jsonl";
  synth_speech(options);
  return read_timings(options.timings);
}

int melete_program(const std::vector<std::string>& words) {
  return run_program(words);
}

TEST(VoiceboxLearning, TheAlignerFindsWhenPhonemesAreSaid) {
  if (!espeak_library_installed()) GTEST_SKIP() << "libespeak-ng is not installed";
  set_threads(0);
  const TemporaryFolder folder;
  synthesized(folder / "train", 64, 1);
  const Timings known = synthesized(folder / "held", 8, 2);
  ASSERT_EQ(
      melete_program({"train", "aligner", "--config", MELETE_SOURCE_DIR "/recipes/voicebox/aligner.toml",
                      "--data", folder / "train", "--out", folder / "run", "--train.steps", "250",
                      "--task.binarisation_from", "150", "--train.sample_every", "0"}),
      0);
  SpeechAligner aligner(folder / "run");
  const auto result = align_recordings(aligner, load_entries(folder / "held"));
  EXPECT_TRUE(result.skipped.empty());
  const TimingErrors errors = timing_errors(result.timings, known);
  std::printf("held-out ends of phonemes: median error %.1f ms, mean %.1f ms\n", errors.median_ms,
              errors.mean_ms);
  EXPECT_LT(errors.median_ms, 25);
}

// Frames of each held-out sentence, made from its phonemes alone.
std::vector<at::Tensor> read_aloud(LoadedVoicebox& voicebox, const Timings& held) {
  std::vector<at::Tensor> made;
  const double per_second = voicebox.features->frames_per_second();
  for (const SpokenTiming& timing : held.list) {
    const auto frames = static_cast<int64_t>(timing.ends_seconds.back() * per_second);
    Condition condition;
    condition.context = at::zeros({1, frames, voicebox.features->dim()});
    condition.hidden = at::ones({1, frames}, at::kBool);
    condition.tokens = ids_by_frame(voicebox.phonemes.ids(timing.phonemes),
                                    frames_of(timing.ends_seconds, per_second, frames))
                           .unsqueeze(0);
    FlowSampling how;
    how.solver.steps = 6;
    RowDraws draws(1, "test", 1);
    made.push_back(sample(voicebox.model, condition, how, draws).frames[0]);
  }
  return made;
}

struct Heard {
  double right = 0, wrong = 0;  // mean warped distances to the sentence that was asked for, and to others
  int64_t recognised = 0;       // how often the right one is the nearest
};

Heard listen(const LoadedVoicebox& voicebox, const std::vector<at::Tensor>& made, const Timings& held) {
  Heard heard;
  std::vector<at::Tensor> real;
  for (const SpokenTiming& timing : held.list)
    real.push_back(voicebox.scale.apply(
        voicebox.features->encode(read_mono(timing.path, voicebox.features->rate_hz()).unsqueeze(0)))[0]);
  const auto count = static_cast<double>(made.size());
  for (size_t i = 0; i < made.size(); ++i) {
    const double right = warped_distance(made[i], real[i]);
    double nearest = std::numeric_limits<double>::infinity();
    for (size_t j = 0; j < real.size(); ++j) {
      if (j == i) continue;
      const double wrong = warped_distance(made[i], real[j]);
      nearest = std::min(nearest, wrong);
      heard.wrong += wrong / (count * (count - 1));
    }
    heard.right += right / count;
    heard.recognised += right < nearest;
  }
  return heard;
}

TEST(VoiceboxLearning, ItLearnsToSpeakSentencesItHasNeverHeard) {
  if (!espeak_library_installed()) GTEST_SKIP() << "libespeak-ng is not installed";
  set_threads(0);
  const TemporaryFolder folder;
  synthesized(folder / "train", 100, 1);
  const Timings held = synthesized(folder / "held", 6, 2);
  const auto train = [&](const std::string& run, const std::string& steps) {
    return melete_program({"train",
                           "voicebox",
                           "--config",
                           MELETE_SOURCE_DIR "/recipes/voicebox/speech_tiny.toml",
                           "--data",
                           folder / "train",
                           "--timings",
                           folder / "train.jsonl",
                           "--out",
                           folder / run,
                           "--train.steps",
                           steps,
                           "--batch_size",
                           "8",
                           "--model.transformer.dim",
                           "96",
                           "--model.transformer.depth",
                           "2",
                           "--task.optimiser.learning_rate",
                           "2e-3",
                           "--task.schedule.warmup_steps",
                           "20",
                           "--train.sample_every",
                           "0",
                           "--train.ema.enabled",
                           "false"});
  };
  ASSERT_EQ(train("run", "400"), 0);
  ASSERT_EQ(train("untrained", "1"), 0);
  const auto heard_of = [&](const std::string& run) {
    LoadedVoicebox voicebox = load_voicebox(folder / run, Weights::best);
    return listen(voicebox, read_aloud(voicebox, held), held);
  };
  const Heard trained = heard_of("run"), untrained = heard_of("untrained");
  std::printf("warped distance: right sentence %.3f, wrong ones %.3f, untrained %.3f; recognised %d of 6\n",
              trained.right, trained.wrong, untrained.right, static_cast<int>(trained.recognised));
  EXPECT_EQ(trained.recognised, 6);
  EXPECT_LT(trained.right, 0.7 * trained.wrong);
  EXPECT_LT(trained.right, 0.7 * untrained.right);
}

}  // namespace
}  // namespace melete::voicebox

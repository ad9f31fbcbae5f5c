// It learns to speak: from recordings and their texts alone, aligner, durations and Voicebox, each trained
// for seconds by the program, read sentences that none of them has met. What they say is told from what they
// should not say by mel frames under time warping.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/temporary_folder.h"
#include "data/base/synth_speech.h"
#include "data/base/timings.h"
#include "io/audio_tensor.h"
#include "real_process.h"
#include "systems/voicebox/align_recordings.h"
#include "systems/voicebox/warped_distance.h"

namespace melete {
namespace voicebox_learning_test {

constexpr int64_t kRateHz = 16000;
constexpr size_t kSentences = 4;

class VoiceboxLearning : public ::testing::Test {
 protected:
  std::string at(const std::string& name) const { return folder_.path() + "/" + name; }

  std::string melete(const Words& words) {
    Process process(MELETE_PROGRAM, words, at("log"));
    const Ended ended = process.wait();
    EXPECT_EQ(ended.code, 0) << ended.output;
    return ended.output;
  }

  // One voice, forty words.
  void speak(const std::string& to, const Words& more) {
    Words words = {
        "data",   "synth", "--kind", "speech", "-o",       at(to), "--voice", "en-us", "--short-sentences",
        "--pace", "160",   "--rate", "16000",  "--format", "wav"};
    words.insert(words.end(), more.begin(), more.end());
    melete(words);
  }

  void train(const std::string& what, const std::string& recipe, const std::string& data,
             const std::string& to, const Words& more) {
    Words words = {"train",
                   what,
                   "--config",
                   MELETE_SOURCE_DIR "/recipes/voicebox/" + recipe,
                   "--data",
                   at(data),
                   "--out",
                   at(to),
                   "--threads",
                   "1",
                   "--train.sample_every",
                   "1000000"};
    words.insert(words.end(), more.begin(), more.end());
    const std::string output = melete(words);
    const size_t line = output.rfind("validation at step");
    if (line != std::string::npos)
      std::printf("%s: %s\n", what.c_str(), output.substr(line, output.find('\n', line) - line).c_str());
  }

  // Sentences of at("texts.txt"), as sound.
  std::vector<at::Tensor> read(const std::string& run) {
    melete({"generate", "voicebox", "--from", at(run), "--durations", at("duration"), "--text_file",
            at("texts.txt"), "--steps", "8", "--temperature", "0.4", "--threads", "1", "-o",
            at(run + ".wav")});
    std::vector<at::Tensor> waves;
    for (size_t i = 0; i < kSentences; ++i)
      waves.push_back(read_mono(at(run + "_" + std::to_string(i) + ".wav"), kRateHz));
    return waves;
  }

  testing::TemporaryFolder folder_;
};

TEST_F(VoiceboxLearning, SaysSentencesThatItHasNeverHeard) {
  if (!espeak_installed()) GTEST_SKIP() << "espeak-ng is not installed";
  speak("train", {"--count", "200", "--seed", "1", "--timings", at("known.jsonl")});
  std::set<std::string> known;
  for (const auto& file : std::filesystem::directory_iterator(at("train")))
    if (file.path().extension() == ".txt") known.insert(read_text(file.path()));
  std::ofstream texts(at("texts.txt"));
  size_t chosen = 0;
  for (int64_t index = 0; chosen < kSentences; ++index) {
    const std::string text = make_utterance(2, index, 0, {0, true, false}).text + "\n";
    if (!known.insert(text).second) continue;
    texts << text;
    ++chosen;
  }
  texts.close();
  speak("held-out", {"--texts", at("texts.txt")});

  train("aligner", "aligner_tiny.toml", "train", "aligner", {});
  const std::string aligned = melete({"data", "align", at("train"), "--from", at("aligner"), "-o",
                                      at("timings.jsonl"), "--known", at("known.jsonl"), "--threads", "1"});
  std::printf("%s", aligned.substr(aligned.rfind("ends of phonemes") - 8).c_str());
  const voicebox::TimingErrors errors =
      voicebox::timing_errors(read_timings(at("timings.jsonl")), read_timings(at("known.jsonl")));
  EXPECT_LT(errors.median_ms, 25);
  train("duration", "duration_tiny.toml", "timings.jsonl", "duration", {"--train.steps", "200"});
  const auto train_for = [&](const char* steps, const char* to) {
    train("voicebox", "speech_tiny.toml", "train", to,
          {"--timings", at("timings.jsonl"), "--train.steps", steps, "--train.validate_every", "200"});
  };
  train_for("400", "voicebox");
  train_for("1", "untrained");

  const auto after = read("voicebox"), before = read("untrained");
  std::vector<at::Tensor> said;
  for (size_t i = 0; i < kSentences; ++i)
    said.push_back(read_mono(at("held-out/speech_00000" + std::to_string(i) + ".wav"), kRateHz));
  for (size_t i = 0; i < kSentences; ++i) {
    double wrong = 1e9;
    for (size_t other = 0; other < kSentences; ++other)
      if (other != i) wrong = std::min(wrong, voicebox::warped_mel_distance(after[i], said[other]));
    const double right = voicebox::warped_mel_distance(after[i], said[i]);
    const double noise = voicebox::warped_mel_distance(before[i], said[i]);
    std::printf("sentence %zu: %.3f from what it should say, %.3f from the nearest other, %.3f untrained\n",
                i, right, wrong, noise);
    // So short a training tells sentences apart; far nearer than others it is only after more
    // (docs/voicebox.md).
    EXPECT_LT(right, wrong);
    EXPECT_LT(right, 0.75 * noise);
  }

  // A voice that was saved speaks by its name, without its recording and without the aligner.
  const std::string recording = at("held-out/speech_000000.wav");
  const Words save = {"voice",      "save",         "anna",      "--voice",     recording,
                      "--from",     at("voicebox"), "--aligner", at("aligner"), "--folder",
                      at("voices"), "--threads",    "1"};
  EXPECT_NE(melete(save).find("anna.safetensors"), std::string::npos);
  std::filesystem::remove(recording);
  const Words speak = {"generate",  "voicebox",  "--from",  at("voicebox"), "--durations", at("duration"),
                       "--text",    "the river", "--voice", "anna",         "--steps",     "2",
                       "--threads", "1",         "-o",      at("anna.wav")};
  Process process(MELETE_PROGRAM, speak, at("log"), Variables{{"MELETE_VOICES", at("voices")}});
  const Ended ended = process.wait();
  EXPECT_EQ(ended.code, 0) << ended.output;
  EXPECT_GT(read_mono(at("anna.wav"), kRateHz).abs().max().item<double>(), 0.01);
}

}  // namespace voicebox_learning_test
}  // namespace melete

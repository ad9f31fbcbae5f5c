// Generation from the command line with models that know nothing: what an edit leaves alone to the bit,
// pauses, speed, and settings that a model has no use for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "base/temporary_folder.h"
#include "cli/app.h"
#include "core/base/error.h"
#include "every_recipe.h"
#include "foreign_files.h"
#include "io/audio_tensor.h"
#include "io/base/audio_file.h"
#include "losses/intelligibility.h"
#include "pretrained/import.h"
#include "small_voicebox.h"
#include "systems/voicebox/generation_speech.h"
#include "systems/voicebox/phoneme_frames.h"

namespace melete {
namespace voicebox_edit_test {

using testing::error_of;
using ::testing::HasSubstr;
using voicebox::moved;
using voicebox::token_ids;
using Json = nlohmann::ordered_json;

constexpr int kRateHz = 16000;
constexpr const char* kTrained = "the young quick golden sailor saw it, over a river. why?";
constexpr const char* kSaid = "the old sailor saw the cold river.";

// The first checkpoint of a run with those settings, before its first step.
void write_run(const std::string& path, const std::string& name, const Json& settings) {
  const std::unique_ptr<Recipe> recipe = make_recipe(name);
  Schema schema = recipe->schema();
  if (const std::string file = tiny_file(name); !file.empty()) schema.apply_file(file);
  schema.apply(settings);
  schema.check();
  recipe->settle();
  torch::manual_seed(1);
  const std::unique_ptr<Task> task = recipe->make_task();
  NoiseBatches batches(recipe->example(2));
  TrainerParts parts{*task, batches};
  parts.config = schema.json();
  save_checkpoint(path, Trainer(std::move(parts), recipe->train).checkpoint());
}

// Samples of so many bits, as a .wav that says so.
void write_whole_numbers(const std::string& path, const std::vector<int32_t>& samples, int bits, int rate) {
  std::ofstream out(path, std::ios::binary);
  const auto number = [&](uint32_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) out.put(static_cast<char>(value >> (8 * i) & 0xff));
  };
  const auto bytes = static_cast<uint32_t>(bits / 8);
  const auto size = static_cast<uint32_t>(samples.size()) * bytes;
  out << "RIFF";
  number(36 + size, 4);
  out << "WAVEfmt ";
  number(16, 4);
  number(1, 2);  // whole numbers
  number(1, 2);  // channels
  number(static_cast<uint32_t>(rate), 4);
  number(static_cast<uint32_t>(rate) * bytes, 4);
  number(bytes, 2);
  number(static_cast<uint32_t>(bits), 2);
  out << "data";
  number(size, 4);
  for (const int32_t sample : samples) number(static_cast<uint32_t>(sample), static_cast<int>(bytes));
}

// Loud enough that every bit is in use, and never silent for long.
std::vector<int32_t> hum(int64_t count, int bits, int rate) {
  std::vector<int32_t> samples;
  const double full = std::ldexp(0.4, bits - 1);
  for (int64_t i = 0; i < count; ++i) {
    const double t = static_cast<double>(i) / rate;
    samples.push_back(
        static_cast<int32_t>(std::lround(full * (std::sin(900 * t * (1 + t)) + 0.5 * std::sin(5000 * t)))));
  }
  return samples;
}

// The number after those words of what was printed; 0: they are not in it.
double figure_after(const std::string& printed, const std::string& words) {
  const size_t at = printed.find(words);
  return at == std::string::npos ? 0 : std::stod(printed.substr(at + words.size()));
}

class VoiceboxCommand : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<melete::testing::TemporaryFolder>();
    std::filesystem::create_directories(at("speech"));
    Timings timings;
    timings.phonemizer.source = "characters";
    for (const int number : {0, 1}) {
      const std::string path = at(fmt::format("speech/{}.wav", number));
      write_whole_numbers(path, hum(2 * kRateHz, 16, kRateHz), 16, kRateHz);
      std::ofstream(at(fmt::format("speech/{}.txt", number))) << kTrained;
      SpokenTiming timing{path, Phonemizer(timings.phonemizer)(kTrained), {}};
      for (size_t i = 1; i <= timing.phonemes.size(); ++i)
        timing.ends_seconds.push_back(2.0 * static_cast<double>(i) /
                                      static_cast<double>(timing.phonemes.size()));
      timings.list.push_back(timing);
    }
    write_timings(at("timings.jsonl"), timings);
    write_run(at("aligner.safetensors"), "aligner",
              {{"data_from", at("speech")}, {"phonemizer", {{"source", "characters"}}}});
    write_run(at("duration.safetensors"), "duration", {{"data_from", at("timings.jsonl")}});
    const Json mel = {{"features_from", "mel"}, {"frame_mean", -3.0}, {"frame_deviation", 2.0}};
    const auto with = [&](Json more) {
      more.update(mel);
      return more;
    };
    write_run(
        at("voicebox.safetensors"), "voicebox",
        with(
            {{"told_by", "phonemes"}, {"timings", at("timings.jsonl")}, {"data", {{"segment_seconds", 0}}}}));
    write_run(at("untold.safetensors"), "voicebox", with({{"told_by", "none"}}));
    const MfccConfig mfcc;
    torch::manual_seed(2);
    const KmeansTokenizer tokenizer(std::make_unique<MfccFeatures>(mfcc),
                                    Centroids{at::randn({16, Mfcc(mfcc).dim()}) * 5, {}, {}});
    save_frozen(at("tokenizer.safetensors"), frozen(tokenizer));
    write_run(at("semantic.safetensors"), "voicebox",
              with({{"told_by", "semantic"}, {"semantic_from", at("tokenizer.safetensors")}}));
  }
  static void TearDownTestSuite() { folder_.reset(); }

  static std::string at(const std::string& name) { return folder_->path() + "/" + name; }

  struct Ran {
    int code = 0;
    std::string output;
  };
  static Ran generate(const std::string& run, std::vector<std::string> more) {
    std::vector<std::string> words = {"generate",  "voicebox", "--from", at(run),
                                      "--threads", "1",        "-o",     at("out.wav")};
    words.insert(words.end(), more.begin(), more.end());
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    Ran ran;
    ran.code = run_program(words);
    ran.output = ::testing::internal::GetCapturedStdout() + ::testing::internal::GetCapturedStderr();
    return ran;
  }
  // What is said later wins.
  static Ran say(const std::vector<std::string>& more) {
    std::vector<std::string> words = {"--durations", at("duration.safetensors"), "--steps", "1", "--solver",
                                      "euler"};
    words.insert(words.end(), more.begin(), more.end());
    return generate("voicebox.safetensors", words);
  }
  static std::vector<float> heard(const std::vector<std::string>& words) {
    const Ran ran = say(words);
    EXPECT_EQ(ran.code, 0) << ran.output;
    return read_audio(at("out.wav")).samples;
  }

  // Edits a recording of so many bits, and looks at every sample outside of what it says it made anew.
  static void expect_untouched(int bits, int rate, const std::string& out, std::vector<std::string> how,
                               bool same_length) {
    SCOPED_TRACE(fmt::format("{} bits at {} Hz, {}", bits, rate, how.front()));
    const auto before = hum(5 * rate / 2, bits, rate);
    write_whole_numbers(at("in.wav"), before, bits, rate);
    how.insert(how.end(), {"--aligner", at("aligner.safetensors"), "--edit", at("in.wav"), "--edit-text",
                           kSaid, "-o", at(out)});
    const Ran ran = say(how);
    ASSERT_EQ(ran.code, 0) << ran.output;
    double from = 0, to = 0;
    const size_t line = ran.output.find("made anew: ");
    ASSERT_NE(line, std::string::npos) << ran.output;
    ASSERT_EQ(std::sscanf(ran.output.c_str() + line, "made anew: %lf to %lf s", &from, &to), 2);
    ASSERT_LT(from, to);

    const std::vector<float> after = read_audio(at(out)).samples;
    const auto sample = [&](size_t i) { return std::ldexp(static_cast<double>(after[i]), bits - 1); };
    // The line says hundredths of a second.
    const auto first = static_cast<size_t>(std::max(0.0, (from - 0.006) * rate));
    const auto last = before.size() - std::min(before.size(), static_cast<size_t>((to + 0.006) * rate));
    ASSERT_GE(after.size(), first + last);
    for (size_t i = 0; i < first; ++i) ASSERT_EQ(sample(i), before[i]) << "sample " << i << " before";
    for (size_t i = 1; i <= last; ++i)
      ASSERT_EQ(sample(after.size() - i), before[before.size() - i]) << "sample " << i << " from the end";
    EXPECT_GT(first + last, 0u);
    size_t changed = 0;
    for (size_t i = first; i + last < std::min(after.size(), before.size()); ++i)
      changed += sample(i) != before[i];
    EXPECT_GT(changed, 0u);
    if (same_length) {
      EXPECT_EQ(after.size(), before.size());
    }
  }

  static std::unique_ptr<melete::testing::TemporaryFolder> folder_;
};

std::unique_ptr<melete::testing::TemporaryFolder> VoiceboxCommand::folder_;

TEST_F(VoiceboxCommand, AReplacementLeavesEveryOtherSampleAsItWas) {
  const std::vector<std::string> how = {"--replace", "old sailor", "--with", "young sailor"};
  expect_untouched(16, 16000, "edited.wav", how, false);
  expect_untouched(24, 22050, "edited.wav", how, false);
  expect_untouched(24, 16000, "edited.flac", how, false);
}

TEST_F(VoiceboxCommand, ARepairLeavesEveryOtherSampleAsItWas) {
  expect_untouched(16, 22050, "edited.wav", {"--denoise", "0.51", "0.93"}, true);  // as two words
  expect_untouched(24, 16000, "edited.flac", {"--denoise", "0.5,0.9"}, true);      // as a list
  EXPECT_EQ(say({"--aligner", at("aligner.safetensors"), "--edit", at("in.wav"), "--edit-text", kSaid,
                 "--denoise", "0.5"})
                .code,
            2);
}

TEST_F(VoiceboxCommand, ABreakIsSilenceOfThatLengthAndNothingElse) {
  const auto plain = heard({"--text", "saw it. why?"});
  const auto broken = heard({"--text", "saw it. <break 250ms> why?"});
  const size_t pause = kRateHz / 4;
  ASSERT_EQ(broken.size(), plain.size() + pause);
  size_t before = 0;  // samples of the first sentence
  while (before < plain.size() && plain[before] == broken[before]) ++before;
  const auto silent = [&](size_t begin) {
    return std::all_of(broken.begin() + static_cast<int64_t>(begin),
                       broken.begin() + static_cast<int64_t>(begin + pause), [](float s) { return s == 0; });
  };
  while (before > 0 && !silent(before)) --before;
  ASSERT_GT(before, 0u);
  EXPECT_TRUE(std::equal(plain.begin() + static_cast<int64_t>(before), plain.end(),
                         broken.begin() + static_cast<int64_t>(before + pause)));
  EXPECT_EQ(say({"--text", "saw <break half a second> it."}).code, 1);
}

TEST_F(VoiceboxCommand, SpeedAndSecondsSetTheLength) {
  const double hop = 256;
  const auto plain = static_cast<double>(heard({"--text", "the young sailor saw it."}).size());
  const auto slow =
      static_cast<double>(heard({"--text", "the young sailor saw it.", "--speed", "0.5"}).size());
  EXPECT_NEAR(slow, 2 * plain, 2 * hop);
  EXPECT_GT(plain, 2 * hop);
  for (const double seconds : {0.5, 1.5})
    EXPECT_NEAR(
        static_cast<double>(
            heard({"--text", "the young sailor saw it.", "--seconds", fmt::format("{}", seconds)}).size()),
        seconds * kRateHz, hop);
}

TEST_F(VoiceboxCommand, AdaptiveSolversSayWhatTheyDid) {
  const Ran ran = say({"--text", "saw it.", "--solver", "bosh3", "--absolute-tolerance", "0.1",
                       "--relative-tolerance", "0.1"});
  ASSERT_EQ(ran.code, 0) << ran.output;
  EXPECT_THAT(ran.output, HasSubstr("rejected"));
  // A smaller tolerance takes more of them; the count is the word before "evaluations".
  const auto evaluations = [](const std::string& output) {
    const size_t end = output.find(" evaluations");
    return std::stoll(output.substr(output.rfind(' ', end - 1) + 1));
  };
  const Ran exact = say({"--text", "saw it.", "--solver", "bosh3", "--absolute-tolerance", "1e-4",
                         "--relative-tolerance", "1e-4"});
  EXPECT_GT(evaluations(exact.output), evaluations(ran.output));
}

TEST_F(VoiceboxCommand, SettingsOfOtherModelsAreRefusedByName) {
  for (const char* setting : {"--speed", "--seconds", "--batch"}) {
    const Ran ran = generate("semantic.safetensors", {"--speech", at("speech/0.wav"), setting, "2"});
    EXPECT_EQ(ran.code, 2);
    EXPECT_THAT(ran.output, HasSubstr(setting));
  }
  EXPECT_EQ(say({"--speech", at("speech/0.wav")}).code, 2);
  const Ran said = generate("semantic.safetensors", {"--speech", at("speech/0.wav"), "--steps", "1"});
  EXPECT_EQ(said.code, 0) << said.output;
  EXPECT_NEAR(read_audio(at("out.wav")).frames(), 2.0 * kRateHz, 0.05 * kRateHz);
}

TEST_F(VoiceboxCommand, OneThatIsToldNothingMakesSoManySeconds) {
  EXPECT_EQ(generate("untold.safetensors", {"--steps", "1"}).code, 2);
  EXPECT_EQ(generate("untold.safetensors", {"--text", "words"}).code, 2);
  const Ran ran = generate("untold.safetensors", {"--seconds", "0.8", "--steps", "1"});
  ASSERT_EQ(ran.code, 0) << ran.output;
  EXPECT_NEAR(read_audio(at("out.wav")).frames(), 0.8 * kRateHz, 256);
  const auto alone = read_audio(at("out.wav")).samples;
  ASSERT_EQ(generate("untold.safetensors", {"--seconds", "0.8", "--steps", "1", "--voice", at("speech/0.wav"),
                                            "--voice-seconds", "0.5"})
                .code,
            0);
  const auto after = read_audio(at("out.wav")).samples;
  EXPECT_NEAR(static_cast<double>(after.size()), static_cast<double>(alone.size()), 256);
  EXPECT_NE(after, alone);
}

TEST_F(VoiceboxCommand, CopiesSayHowFarTheyAreFromTheirOriginals) {
  const Ran one = generate("untold.safetensors", {"--copy", at("speech/0.wav")});
  ASSERT_EQ(one.code, 0) << one.output;
  EXPECT_EQ(read_audio(at("out.wav")).frames(), 2 * kRateHz / 256 * 256);
  EXPECT_THAT(one.output, HasSubstr("beside the original: mel distance"));
  const at::Tensor original = read_mono(at("speech/0.wav"), kRateHz),
                   copy = read_mono(at("out.wav"), kRateHz);
  EXPECT_NEAR(figure_after(one.output, " STOI "), intelligibility(original, copy, kRateHz)->stoi, 0.001);
  const Ran all = generate("untold.safetensors", {"--copy", at("speech")});
  ASSERT_EQ(all.code, 0) << all.output;
  EXPECT_THAT(all.output, HasSubstr("beside the 2 originals: mel distance"));
  // Both recordings are the same: so is the mean.
  EXPECT_EQ(figure_after(all.output, " STOI "), figure_after(one.output, " STOI "));
  EXPECT_EQ(read_audio(at("out_1.wav")).samples, read_audio(at("out.wav")).samples);
}

TEST_F(VoiceboxCommand, AnImportedModelSpeaksOnceItsFramesAreNamed) {
  ASSERT_EQ(run_program({"import", "voicebox-pytorch",
                         MELETE_SOURCE_DIR "/tests/golden/voicebox/checkpoints/voicebox.2.pt", "-o",
                         at("imported.safetensors")}),
            0);
  const std::vector<std::string> plain = {"--seconds", "0.2", "--steps", "1"};
  Ran ran = generate("imported.safetensors", plain);
  EXPECT_EQ(ran.code, 1);
  EXPECT_THAT(ran.output, HasSubstr("features_from"));
  auto words = plain;
  words.insert(words.end(), {"--features-from", "mel"});
  ran = generate("imported.safetensors", words);
  EXPECT_EQ(ran.code, 1);
  EXPECT_THAT(ran.output, HasSubstr("12"));  // values of its frames
  write_run(at("vocos.safetensors"), "vocos", {{"mel", {{"mels", 12}}}});
  words.back() = at("vocos.safetensors");
  ran = generate("imported.safetensors", words);
  EXPECT_EQ(ran.code, 0) << ran.output;
  words = plain;
  words.insert(words.end(), {"--features-from", "mel"});
  EXPECT_EQ(generate("untold.safetensors", words).code, 1) << "it knows its frames itself";
}

TEST(VoiceboxWords, AreReplacedAsWholeWords) {
  using voicebox::with_words_replaced;
  EXPECT_EQ(with_words_replaced("the golden old sailor", "old", "young"), "the golden young sailor");
  EXPECT_EQ(with_words_replaced("Über alles, Über-all!", "alles", "allem"), "Über allem, Über-all!");
  EXPECT_EQ(with_words_replaced("Old sailors", "old sailors", "The sea"), "The sea");
  EXPECT_EQ(with_words_replaced("wait, what", ", what", ""), "wait");
  EXPECT_THAT(error_of([] { with_words_replaced("golden", "old", "young"); }), HasSubstr("not in"));
  EXPECT_THAT(error_of([] { with_words_replaced("to be or not to be", "be", "go"); }), HasSubstr("2 times"));
  EXPECT_EQ(with_words_replaced("to be or not to be", "or not to be", "go"), "to be go");
}

TEST(VoiceboxPhonemes, InTheMiddleAreAboutAWord) {
  const at::Tensor tokens =
      at::tensor({1, 1, 2, 3, 3, 3, 4, 5, 6, 6, 7, 7, 2, 2, 2, 1, -1, -1, -1, -1}, at::kLong).view({2, 10});
  const at::Tensor chosen = voicebox::phonemes_in_the_middle(tokens, at::tensor({10, 6}, at::kLong), 2);
  // Of 1 2 3 4 5 6 the third and fourth; of 7 2 1 the first two.
  EXPECT_TRUE(chosen[0].nonzero().flatten().equal(at::tensor({3, 4, 5, 6}, at::kLong)));
  EXPECT_TRUE(chosen[1].nonzero().flatten().equal(at::tensor({0, 1, 2, 3, 4}, at::kLong)));
}

// Beside training's masks, validation says how it does where all is hidden that sampling hides; the same at
// every step.
TEST(VoiceboxValidation, HasMasksAsInSampling) {
  voicebox::VoiceboxConfig model;
  model.frame_dim = 6;
  model.tokens = 9;
  model.token_dim = 16;
  model.transformer.dim = 32;
  model.transformer.depth = 2;
  model.transformer.heads = 2;
  model.transformer.head_dim = 16;
  torch::manual_seed(3);
  voicebox::VoiceboxTask task(model, voicebox::TaskConfig(), {0, 1}, nullptr, {});
  voicebox::Voicebox network = moved(task.network());
  Batch batch;
  batch.set("frames", noise({2, 12, 6}, 4));
  batch.set("tokens", token_ids(2, 12, 5, 9));
  const at::NoGradGuard no_grad;
  const auto validated = [&] {
    SeededDraws draws(7);
    StepContext context;
    context.training = false;
    context.draws = &draws;
    std::map<std::string, double> values;
    for (const auto& [name, value] : task.validate(batch, context).named) values[name] = value.item<double>();
    return values;
  };
  const auto values = validated();
  ASSERT_TRUE(values.count("loss as sampled"));
  EXPECT_NE(values.at("loss as sampled"), values.at("loss"));
  EXPECT_EQ(validated(), values);
  // By hand, from the same draws.
  SeededDraws draws(7);
  voicebox::FlowMatchingConfig flow = voicebox::TaskConfig().flow;
  flow.condition_drop = 0;
  voicebox::FlowBatch given;
  given.frames = batch["frames"];
  given.tokens = batch["tokens"];
  const auto losses = voicebox::flow_matching_losses(network, given, flow, draws);
  voicebox::FlowDraws all;
  all.noise = draws.normal("noise", given.frames.sizes());
  all.times = losses.times;
  all.hidden = at::ones({2, 12}, at::kBool);
  EXPECT_NEAR(values.at("loss as sampled"),
              voicebox::flow_matching_losses(network, given, flow, all).rows.mean().item<double>(), 1e-6);
}

// The stretch itself begins and ends as the recording does; nothing else is touched, whatever is put there.
TEST(VoiceboxSplice, FadesInsideTheStretchOnly) {
  std::vector<float> recording(100);
  for (size_t i = 0; i < recording.size(); ++i) recording[i] = static_cast<float>(i);
  for (const size_t count : {0, 1, 5, 40, 300}) {
    const auto result = voicebox::splice(recording, std::vector<float>(count, 1000), 30, 70, 10);
    ASSERT_EQ(result.size(), 60 + count);
    for (size_t i = 0; i < 30; ++i) {
      EXPECT_EQ(result[i], recording[i]);
      EXPECT_EQ(result[result.size() - 1 - i], recording[99 - i]);
    }
    if (count < 40) continue;
    EXPECT_LT(result[30], 100);  // nearly the recording
    EXPECT_GT(result[39], 900);  // nearly what was made
    EXPECT_EQ(result[41], 1000);
    EXPECT_LT(result[29 + count], 130);
  }
}

}  // namespace voicebox_edit_test
}  // namespace melete

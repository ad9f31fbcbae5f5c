// The loop of the paper: texts are known for one tenth of the speech, and what a model reads in the rest
// teaches. On speech that is made of tokens alone, letters spoken by several voices at their own pace; and on
// sound, sentences that espeak-ng says in two voices.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>

#include "base/temporary_folder.h"
#include "cli/app.h"
#include "core/base/random.h"
#include "data/base/espeak.h"
#include "data/token_folder.h"
#include "io/base/audio_file.h"
#include "real_process.h"
#include "systems/spear_tts/pairs.h"
#include "systems/spear_tts/reading.h"
#include "systems/spear_tts/text_to_tokens.h"

namespace melete {
namespace spear_tts_loop_test {

using namespace spear_tts;
using testing::TemporaryFolder;

constexpr int64_t kVoices = 3, kLetters = 27;  // the last: a space

int64_t letter_of(char letter) {
  return letter == ' ' ? kLetters - 1 : letter - 'a';
}

// Voices differ in their vowels.
bool is_vowel(char letter) {
  return std::string("aeiou").find(letter) != std::string::npos;
}

struct Spoken {
  std::string text;
  std::vector<int64_t> tokens;
};

std::string some_words(Rng& rng, int64_t count) {
  static const std::vector<std::string> words = {"amber",  "basket", "candle", "desert",  "forest", "garden",
                                                 "island", "jungle", "kettle", "lantern", "marble", "orchard",
                                                 "pepper", "silver", "timber", "window"};
  std::string text;
  for (int64_t i = 0; i < count; ++i)
    text +=
        (i > 0 ? " " : "") + words[static_cast<size_t>(rng.integer(0, static_cast<int64_t>(words.size())))];
  return text;
}

// Two words by one of the voices, each letter one to three tokens long.
Spoken say(uint64_t seed, int64_t index) {
  Rng rng(random_key(seed, "spoken", {static_cast<uint64_t>(index)}));
  Spoken result;
  const int64_t voice = rng.integer(0, kVoices);
  result.text = some_words(rng, 2);
  for (const char letter : result.text)
    for (int64_t n = rng.integer(1, 4); n > 0; --n)
      result.tokens.push_back(letter_of(letter) * kVoices + (is_vowel(letter) ? voice : 0));
  return result;
}

// What a listener would hear in tokens without repeats.
std::string heard(const at::Tensor& tokens) {
  std::string text;
  for (int64_t i = 0; i < tokens.size(0); ++i) {
    const int64_t letter = tokens[i].item<int64_t>() / kVoices;
    text += letter == kLetters - 1 ? ' ' : static_cast<char>('a' + letter);
  }
  return text;
}

// A word's double letters are one token, since runs count once.
std::string without_doubles(const std::string& text) {
  std::string result;
  for (const char letter : text)
    if (result.empty() || result.back() != letter) result += letter;
  return result;
}

// The first `labelled` items have a text.
void write_speech(const std::string& folder, uint64_t seed, int64_t count, int64_t labelled) {
  TokenColumns columns;
  columns.list.push_back({"semantic", "spoken letters", kVoices * kLetters, 0, 25, 16000});
  std::vector<std::string> names;
  std::vector<Item> items;
  for (int64_t i = 0; i < count; ++i) {
    const Spoken spoken = say(seed, i);
    names.push_back(fmt::format("{}_{:04}", seed, i));
    Item& item = items.emplace_back();
    item.add("semantic", at::tensor(spoken.tokens, at::kLong));
    item.words = {{"path", names.back()}, {"text", i < labelled ? spoken.text : ""}};
  }
  const TokenFolderWriter writer(folder, columns, names, count);
  writer.write(0, items);
}

void run(const std::vector<std::string>& words) {
  ::testing::internal::CaptureStdout();
  const int code = run_program(words);
  const std::string said = ::testing::internal::GetCapturedStdout();
  ASSERT_EQ(code, 0) << said;
}

class SpearLoop : public ::testing::Test {
 protected:
  std::string at(const std::string& name) const { return folder_.path() + "/" + name; }

  void train(const std::string& what, const std::string& data, const std::string& out, int64_t steps,
             std::vector<std::string> more) {
    std::vector<std::string> words = {"train", what,    "--data",  at(data),
                                      "--out", at(out), "--steps", std::to_string(steps)};
    const std::pair<const char*, const char*> settings[] = {{"batch_size", "32"},
                                                            {"threads", "1"},
                                                            {"data.like_length", "4"},
                                                            {"data.workers", "0"},
                                                            {"data.valid_fraction", "0"},
                                                            {"model.dim", "64"},
                                                            {"model.encoder_layers", "2"},
                                                            {"model.decoder_layers", "2"},
                                                            {"model.heads", "4"},
                                                            {"model.head_dim", "16"},
                                                            {"task.optimiser.learning_rate", "3e-3"},
                                                            {"task.schedule.warmup_steps", "30"},
                                                            {"train.validate_every", "0"},
                                                            {"train.sample_every", "0"},
                                                            {"train.save_every", "0"},
                                                            {"train.log_every", "1000"},
                                                            {"data.segment_seconds", "0"}};
    for (const auto& [name, value] : settings) words.push_back(fmt::format("--{}={}", name, value));
    words.insert(words.end(), more.begin(), more.end());
    run(words);
  }

  Ended really(Words words) { return Process(MELETE_PROGRAM, words, at("log"), Process::Setup{}).wait(); }

  // In whatever order: rows are read by their names.
  static std::multiset<std::pair<std::string, std::vector<int64_t>>> pairs_of(const std::string& tokens,
                                                                              bool repeats = true) {
    std::multiset<std::pair<std::string, std::vector<int64_t>>> pairs;
    for (const Item& item : read_token_items(tokens)) {
      const at::Tensor speech = item.find("semantic")->values.to(at::kLong).contiguous();
      const int64_t* const first = speech.data_ptr<int64_t>();
      std::vector<int64_t> values(first, first + speech.numel());
      if (!repeats) values.erase(std::unique(values.begin(), values.end()), values.end());
      pairs.insert({item.words.at("text"), values});
    }
    return pairs;
  }

  // Two processes of the real program make the same pairs; as rows of spear-tts-pytorch they come back.
  void check_processes_and_rows() {
    const Ended ended = really({"data", "back-translate", at("all"), "--from", at("read"), "-o", at("by-two"),
                                "--procs", "2", "--threads", "2"});
    ASSERT_EQ(ended.code, 0) << ended.output;
    EXPECT_EQ(pairs_of(at("pairs")), pairs_of(at("by-two")));
    run({"data", "pairs", at("pairs"), "--from", at("read"), "-o", at("rows")});
    run({"data", "pairs", at("rows"), "--from", at("read"), "-o", at("back")});
    // Rows hold what the model knows, which is trained without repeats.
    EXPECT_EQ(pairs_of(at("pairs"), false), pairs_of(at("back")));
  }

  TemporaryFolder folder_;
};

// Character error of what the model says, by the letters that its tokens stand for.
double error_of(const std::string& run_folder, int64_t texts) {
  Reader reader = open_reader(run_folder, Weights::best);
  TextToTokensConfig config;
  config.how.sampling.temperature = 0;
  config.how.longest = 64;
  std::vector<std::string> written;
  for (int64_t i = 0; i < texts; ++i) written.push_back(say(2, i).text);
  const std::vector<at::Tensor> said = text_to_tokens(reader, written, config, 0);
  ReadingErrors errors;
  for (size_t i = 0; i < said.size(); ++i)
    errors += character_errors(heard(said[i]), without_doubles(written[i]));
  return errors.share();
}

// About half in one run (docs/spear_tts.md); other machines round otherwise.
TEST_F(SpearLoop, ReadingWhatIsNotLabelledTeachesToSpeak) {
  write_speech(at("all"), 1, 800, 80);
  write_speech(at("tenth"), 1, 80, 80);
  const std::vector<std::string> little_data = {
      "--model.feed_forward_dropout=0.1", "--model.attention_dropout=0.1",
      "--task.optimiser.weight_decay=0.1", "--from", at("pretrain")};
  std::vector<std::string> with_pairs = little_data;
  with_pairs.insert(with_pairs.end(), {"--generated_from", at("pairs")});
  train("spear-pretrain", "all", "pretrain", 600, {"--task.deletion.share=0.4"});
  train("spear-back-translate", "tenth", "read", 300, little_data);
  run({"data", "back-translate", at("all"), "--from", at("read"), "-o", at("pairs"), "--threads", "1"});
  check_processes_and_rows();
  train("spear-text-to-semantic", "tenth", "alone", 400, little_data);
  train("spear-text-to-semantic", "tenth", "loop", 400, with_pairs);
  const double alone = error_of(at("alone"), 64), loop = error_of(at("loop"), 64);
  std::printf("character error of what is said: %.3f with the tenth alone, %.3f with what was read\n", alone,
              loop);
  EXPECT_LT(loop, 0.75 * alone);
  EXPECT_LT(loop, 0.25);
}

// Not what it says, but that every flag does what it says.
TEST_F(SpearLoop, TheProgramDoesWhatItsFlagsSay) {
  write_speech(at("all"), 1, 24, 24);
  train("spear-text-to-semantic", "all", "speak", 3,
        {"--model.early_exit_layer=1", "--model.condition_drop=0.1", "--no-task.freeze"});
  train("spear-back-translate", "all", "read", 3, {"--no-task.freeze"});
  std::ofstream(at("say.txt")) << "Amber 3.\n\nWindow.\n";
  const Words usual = {"generate", "spear-tts",   "--from",    at("speak"), "--text_file", at("say.txt"),
                       "-o",       at("out.txt"), "--threads", "1",         "--longest",   "24"};
  const auto with = [&](const Words& more) {
    Words words = usual;
    words.insert(words.end(), more.begin(), more.end());
    return really(words);
  };
  using ::testing::HasSubstr;
  Ended ended = with({"--temperature", "0", "--read_back", at("read"), "--speculative", "--compare"});
  ASSERT_EQ(ended.code, 0) << ended.output;
  for (const char* words : {"2 passages", "drafts: ", "the same tokens", "text: Amber three.",
                            "text: Window.", "read back: character error", "word error"})
    EXPECT_THAT(ended.output, HasSubstr(words));
  const std::string drafted = read_text(at("out.txt"));
  EXPECT_EQ(std::count(drafted.begin(), drafted.end(), '\n'), 2);
  ended = with({"--temperature", "0", "--read_back", at("read"), "--no-normalise"});
  ASSERT_EQ(ended.code, 0) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("text: Amber 3."));
  ended = with({"--temperature", "0"});
  ASSERT_EQ(ended.code, 0) << ended.output;
  EXPECT_EQ(read_text(at("out.txt")), drafted);
  ended = with({"--temperature", "0", "--precision", "int8", "--speculative", "--guidance", "2"});
  EXPECT_EQ(ended.code, 0) << ended.output;
  EXPECT_EQ(with({"--beam", "2"}).code, 0);

  // What would be passed over is wrong usage.
  const std::pair<Words, const char*> wrong[] = {{{"--beam", "2", "--speculative"}, "give one of them"},
                                                 {{"--beam", "2", "--temperature", "0.5"}, "--temperature"},
                                                 {{"--beam", "2", "--top_k", "5"}, "--top_k"},
                                                 {{"--beam", "2", "--top_p", "0.5"}, "--top_p"},
                                                 {{"--compare"}, "goes with --speculative"},
                                                 {{"--fine", "x"}, "goes with --coarse"},
                                                 {{"--vocoder", "x"}, "goes with --voicebox"}};
  for (const auto& [more, says] : wrong) {
    ended = with(more);
    EXPECT_EQ(ended.code, 2) << ended.output;
    EXPECT_THAT(ended.output, HasSubstr(says));
  }
}

// The first `labelled` items of a folder of tokens keep their text.
void write_labelled(const std::string& from, const std::string& to, size_t labelled) {
  std::vector<Item> items = read_token_items(from);
  std::vector<std::string> names;
  for (size_t i = 0; i < items.size(); ++i) {
    names.push_back(items[i].words.at("path"));
    if (i >= labelled) items[i].words["text"] = "";
  }
  TokenFolderWriter(to, read_token_columns(from), names, static_cast<int64_t>(items.size())).write(0, items);
}

class SpearSound : public SpearLoop {
 protected:
  // Three of sixteen words in one of two voices, as sound, and as clusters of cepstral coefficients.
  void speak(const std::string& name, uint64_t seed, int64_t count) {
    std::ofstream texts(at(name + ".txt"));
    Rng rng(random_key(seed, "said", {}));
    for (int64_t i = 0; i < count; ++i) texts << some_words(rng, 3) << "\n";
    texts.close();
    run({"data", "synth", "--kind", "speech", "-o", at(name + "-sound"), "--count", std::to_string(count),
         "--seed", std::to_string(seed), "--voices", "2", "--texts", at(name + ".txt"), "--rate", "16000"});
    const std::string tokenizer = at("tokenizer.safetensors");
    if (name == "all")
      run({"train", "kmeans", "--features", "mfcc", "--clusters", "64", "--data", at("all-sound"), "-o",
           tokenizer, "--threads", "1"});
    run({"data", "tokenize", at(name + "-sound"), "--semantic", tokenizer, "-o", at(name), "--threads", "1"});
  }

  void heard_and_written(std::vector<at::Tensor>& heard, std::vector<std::string>& written) {
    for (const Item& item : read_token_items(at("held-out"))) {
      heard.push_back(item.find("semantic")->values);
      written.push_back(item.words.at("text"));
    }
  }

  // Character error of what a model reads in recordings that nothing was trained on.
  double reading_error(const std::string& run_folder) {
    std::vector<at::Tensor> heard;
    std::vector<std::string> written;
    heard_and_written(heard, written);
    Reader reader = open_reader(at(run_folder), Weights::best, "spear-back-translate");
    return share_of_errors(tokens_to_text(reader, heard), written);
  }

  // The same of what a model says when it is given their texts, as a judge reads it.
  double speaking_error(const std::string& run_folder, const std::string& judge) {
    std::vector<at::Tensor> heard;
    std::vector<std::string> written;
    heard_and_written(heard, written);
    Reader speaker = open_reader(at(run_folder), Weights::best);
    Reader reader = open_reader(at(judge), Weights::best, "spear-back-translate");
    TextToTokensConfig config;
    config.how.sampling.temperature = 0;
    config.how.longest = 128;
    return share_of_errors(tokens_to_text(reader, text_to_tokens(speaker, written, config, 0)), written);
  }

  static double share_of_errors(const std::vector<std::string>& read,
                                const std::vector<std::string>& written) {
    ReadingErrors errors;
    for (size_t i = 0; i < read.size(); ++i) errors += character_errors(read[i], written[i]);
    return errors.share();
  }
};

// Every passage is as long as its tokens say, with the pause that belongs between them.
TEST_F(SpearSound, VoiceboxMakesTokensHeard) {
  if (!espeak_installed()) GTEST_SKIP() << "espeak-ng is not installed";
  speak("all", 1, 8);
  const std::string tokenizer = at("tokenizer.safetensors");
  train("spear-text-to-semantic", "all", "speak", 2, {"--no-task.freeze", "--repeats"});
  train("spear-text-to-semantic", "all", "without-repeats", 2, {"--no-task.freeze"});
  run({"train",
       "voicebox",
       "--config",
       MELETE_SOURCE_DIR "/recipes/voicebox/voicebox_tiny.toml",
       "--data",
       at("all-sound"),
       "--out",
       at("voicebox"),
       "--features_from",
       "mel",
       "--semantic_from",
       tokenizer,
       "--steps",
       "2",
       "--threads",
       "1",
       "--batch_size",
       "2",
       "--data.segment_seconds",
       "0.5",
       "--train.validate_every",
       "0",
       "--train.sample_every",
       "0"});
  std::ofstream(at("say.txt")) << "amber\n\nwindow\n";
  const auto with = [&](const std::string& from, const std::string& out, const Words& more) {
    Words words = {"generate", "spear-tts", "--from", at(from),        "--text_file", at("say.txt"), "-o",
                   at(out),    "--threads", "1",      "--temperature", "0",           "--longest",   "40"};
    words.insert(words.end(), more.begin(), more.end());
    return really(words);
  };
  Ended ended = with("speak", "out.txt", {});
  ASSERT_EQ(ended.code, 0) << ended.output;
  std::istringstream lines(read_text(at("out.txt")));
  std::vector<double> seconds;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream tokens(line);
    seconds.push_back(static_cast<double>(std::distance(std::istream_iterator<std::string>(tokens), {})) /
                      50);
  }
  ASSERT_EQ(seconds.size(), 2u);
  ASSERT_GT(seconds[0] * seconds[1], 0) << "an untrained model that ends at once";
  const std::string voice = at("all-sound") + "/speech_000000.flac";
  for (const Words& more : {Words{}, Words{"--voice", voice, "--voice_seconds", "0.5"}}) {
    Words words = {"--voicebox", at("voicebox"), "--steps", "2"};
    words.insert(words.end(), more.begin(), more.end());
    ended = with("speak", "out.wav", words);
    ASSERT_EQ(ended.code, 0) << ended.output;
    const Audio made = read_audio(at("out.wav"));
    EXPECT_NEAR(static_cast<double>(made.frames()) / made.rate_hz, seconds[0] + 0.7 + seconds[1], 0.07);
  }
  ended = with("without-repeats", "out.wav", {"--voicebox", at("voicebox")});
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.output, ::testing::HasSubstr("without repeats"));
}

// Three minutes of a core. docs/spear_tts.md has the figures of one run.
TEST_F(SpearSound, WhatIsReadInTheRestTeachesToSpeak) {
  if (!espeak_installed()) GTEST_SKIP() << "espeak-ng is not installed";
  speak("all", 1, 1000);
  speak("held-out", 2, 64);
  write_labelled(at("all"), at("tenth"), 100);
  // A model this small has not learned so much that it should be kept from moving.
  const auto with = [&](std::vector<std::string> words) {
    words.insert(words.end(), {"--no-task.freeze", "--model.feed_forward_dropout=0.1",
                               "--model.attention_dropout=0.1", "--task.optimiser.weight_decay=0.1"});
    return words;
  };
  train("spear-pretrain", "tenth", "pretrain", 800, {"--task.deletion.share=0.4"});
  train("spear-back-translate", "tenth", "read-alone", 300, with({}));
  train("spear-back-translate", "tenth", "read", 300, with({"--from", at("pretrain")}));
  run({"data", "back-translate", at("tenth"), "--from", at("read"), "-o", at("pairs"), "--threads", "1"});
  train("spear-text-to-semantic", "tenth", "alone", 400, with({"--from", at("pretrain")}));
  train("spear-text-to-semantic", "tenth", "loop", 400,
        with({"--from", at("pretrain"), "--generated_from", at("pairs")}));
  train("spear-back-translate", "all", "judge", 500, {"--no-task.freeze"});  // by all texts
  const double read_alone = reading_error("read-alone"), read = reading_error("read"),
               judge = reading_error("judge");
  const double alone = speaking_error("alone", "judge"), loop = speaking_error("loop", "judge");
  std::printf(
      "character error on 64 held-out sentences: reading %.3f from the tenth alone, %.3f after pretraining "
      "(the "
      "judge: %.3f); speaking %.3f from the tenth alone, pretrained as well, %.3f with what was read in the "
      "rest\n",
      read_alone, read, judge, alone, loop);
  EXPECT_LT(judge, 0.05);
  EXPECT_LT(read, 0.5 * read_alone);
  EXPECT_LT(loop, 0.5 * alone);
  EXPECT_LT(loop, 0.5 * read_alone);
}

}  // namespace spear_tts_loop_test
}  // namespace melete

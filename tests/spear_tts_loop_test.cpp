// The loop of the paper on speech that is made of tokens alone: letters spoken by several voices at their own
// pace. Texts are known for one tenth of it; reading the rest teaches to say what was never labelled.
#include <gtest/gtest.h>

#include "base/temporary_folder.h"
#include "cli/app.h"
#include "core/base/random.h"
#include "data/token_folder.h"
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

// Two words by one of the voices, each letter one to three tokens long.
Spoken say(uint64_t seed, int64_t index) {
  static const std::vector<std::string> words = {"amber",  "basket", "candle", "desert",  "forest", "garden",
                                                 "island", "jungle", "kettle", "lantern", "marble", "orchard",
                                                 "pepper", "silver", "timber", "window"};
  Rng rng(random_key(seed, "spoken", {static_cast<uint64_t>(index)}));
  Spoken result;
  const int64_t voice = rng.integer(0, kVoices);
  for (int64_t i = 0; i < 2; ++i)
    result.text +=
        (i > 0 ? " " : "") + words[static_cast<size_t>(rng.integer(0, static_cast<int64_t>(words.size())))];
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
  train("spear-text-to-semantic", "tenth", "alone", 400, little_data);
  train("spear-text-to-semantic", "tenth", "loop", 400, with_pairs);
  const double alone = error_of(at("alone"), 64), loop = error_of(at("loop"), 64);
  std::printf("character error of what is said: %.3f with the tenth alone, %.3f with what was read\n", alone,
              loop);
  EXPECT_LT(loop, 0.75 * alone);
  EXPECT_LT(loop, 0.25);
}

}  // namespace spear_tts_loop_test
}  // namespace melete

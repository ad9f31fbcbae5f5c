// Tiny recipes, trained for as long as the first row of the table beside each of them: their figures are what
// the table says. Recipes that other tests train anyway are held to theirs there.
#include "expected_figures.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>

#include "every_recipe.h"
#include "real_process.h"
#include "toy_task.h"

namespace melete {
namespace expected_figures_test {

class ExpectedFigures : public ::testing::Test {
 protected:
  std::string at(const std::string& name) const { return folder_.path + "/" + name; }
  void melete(const Words& words) {
    Process process(MELETE_PROGRAM, words, at("log"), Variables{{"OMP_NUM_THREADS", "1"}});
    const Ended ended = process.wait();
    ASSERT_EQ(ended.code, 0) << ended.output;
  }
  // The first steps of a recipe, into a folder of its task's name, with the schedule of all of them: that
  // of phase, which falls for decay_steps.
  void train(const std::string& task, const std::string& recipe, int64_t steps, const std::string& phase,
             int64_t decay_steps, const Words& more) {
    Words words = {"train",
                   task,
                   "--config",
                   fmt::format("{}/recipes/{}.toml", MELETE_SOURCE_DIR, recipe),
                   "--out",
                   at(task),
                   "--threads",
                   "1",
                   "--steps",
                   std::to_string(steps),
                   fmt::format("--{}.schedule.decay_steps", phase),
                   std::to_string(decay_steps),
                   "--train.sample_every",
                   "0"};
    words.insert(words.end(), more.begin(), more.end());
    melete(words);
    expect_on_track(at(task));
  }
  toy::TemporaryFolder folder_;
};

// Every table is of the recipe beside it and can be read; and one that a run could never miss says nothing.
TEST(ExpectedTables, AreOfTheirRecipesAndCanBeMissed) {
  namespace fs = std::filesystem;
  size_t tables = 0;
  for (const auto& entry : fs::recursive_directory_iterator(fs::path(MELETE_SOURCE_DIR) / "recipes")) {
    const std::string path = entry.path().string();
    if (!is_expectation_file(path)) continue;
    SCOPED_TRACE(path);
    ++tables;
    const std::string recipe_path =
        path.substr(0, path.size() - std::string(".expect.toml").size()) + ".toml";
    const Expectation table = read_expectation(path);
    const auto recipe = make_recipe(table.task);
    Schema schema = recipe->schema();
    schema.apply_file(recipe_path);
    EXPECT_EQ(recipe->train.steps, table.steps);
    EXPECT_FALSE(table.data.empty() || table.machine.empty());
    recipe->settle_on_paper();
    EXPECT_EQ(recipe->make_task()->main_figure().name, table.main.name);
    const auto& main = table.validation.at(table.main.name);
    EXPECT_LE(main.rbegin()->first, table.steps);
    EXPECT_GT(main.rbegin()->first + recipe->train.validate_every, table.steps);
    // Between its first row and its last a figure moves by more than the last band is wide.
    const Band first = main.begin()->second, last = main.rbegin()->second;
    if (main.size() > 1) {
      EXPECT_GT(std::abs(first.low + first.high - last.low - last.high) / 2, (last.high - last.low) / 4);
    }
  }
  EXPECT_GT(tables, 0u);
}

// Schedules end where the recipe's do: --steps alone would squeeze them.
TEST_F(ExpectedFigures, CodecAndSemanticStage) {
  melete({"data", "synth", "--kind", "music", "-o", at("music"), "--count", "240", "--seed", "1"});
  train("soundstream", "soundstream/tiny", 100, "generator", 550, {"--data", at("music")});
  melete({"train", "kmeans", "--features", "mfcc", "--clusters", "64", "--data", at("music"), "-o",
          at("tokenizer.safetensors")});
  melete({"data", "tokenize", at("music"), "--semantic", at("tokenizer.safetensors"), "-o", at("tokens")});
  train("semantic", "audiolm/semantic_tiny", 80, "task", 220,
        {"--data", at("tokens"), "--semantic_from", at("tokenizer.safetensors")});
}

TEST_F(ExpectedFigures, JointEmbeddingOfSoundAndWords) {
  melete({"data", "synth", "--kind", "music", "-o", at("music"), "--count", "2000", "--seed", "1", "--rate",
          "16000"});
  train("mulan", "musiclm/mulan_tiny", 50, "task", 380, {"--data", at("music")});
}

TEST_F(ExpectedFigures, SpeechTokensAndText) {
  melete({"data", "synth", "--kind", "speech", "-o", at("speech"), "--count", "600", "--seed", "1", "--rate",
          "16000"});
  melete({"train", "kmeans", "--features", "mfcc", "--clusters", "64", "--data", at("speech"), "-o",
          at("tokenizer.safetensors")});
  melete({"data", "tokenize", at("speech"), "--semantic", at("tokenizer.safetensors"), "-o", at("tokens")});
  train("spear-pretrain", "spear_tts/spear_pretrain_tiny", 300, "task", 280, {"--data", at("tokens")});
  for (const std::string stage : {"back_translate", "text_to_semantic"}) {
    std::string task = "spear-" + stage;
    std::replace(task.begin(), task.end(), '_', '-');
    train(task, "spear_tts/spear_" + stage + "_tiny", 100, "task", 280,
          {"--data", at("tokens"), "--from", at("spear-pretrain")});
  }
}

}  // namespace expected_figures_test
}  // namespace melete

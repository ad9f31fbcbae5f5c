// It learns: the tiny recipe, trained for a minute or two on captioned music, finds the captions of pieces
// that it has never heard.
#include <gtest/gtest.h>
#include <torch/utils.h>

#include <cmath>

#include "base/temporary_folder.h"
#include "core/base/random.h"
#include "core/engine.h"
#include "data/base/synth_music.h"
#include "data/loader.h"
#include "data/recordings.h"
#include "run/reporter.h"
#include "systems/musiclm/embed.h"
#include "systems/musiclm/evaluate.h"
#include "systems/musiclm/system.h"
#include "train/trainer.h"

namespace melete {
namespace musiclm_learning_test {

constexpr int64_t kAmong = 64, kTraining = 1280, kSteps = 200;

std::shared_ptr<AudioDataset> captioned(const std::string& folder, int64_t count, uint64_t seed,
                                        const RecordingsConfig& config) {
  SynthOptions options;
  options.folder = folder;
  options.count = count;
  options.seed = seed;
  options.rate_hz = 8000;
  options.seconds = 2;
  options.format = "wav";
  synth_music(options);
  return std::make_shared<AudioDataset>(load_entries(folder), config);
}

double value_of(const ValidationReport& report, const std::string& name) {
  for (const auto& [key, value] : report.losses)
    if (key == name) return value;
  throw std::runtime_error("validation says nothing of " + name);
}

TEST(MusicLmLearning, CaptionsOfUnheardPiecesAreFound) {
  set_threads(1);
  const auto made = make_mulan_recipe();
  auto* recipe = dynamic_cast<RecordingsRecipe*>(made.get());
  ASSERT_NE(recipe, nullptr);
  Schema schema = recipe->schema();
  schema.apply_file(MELETE_SOURCE_DIR "/recipes/musiclm/mulan_tiny.toml");
  schema.set("train.steps", std::to_string(kSteps));
  schema.set("train.validate_batches", "2");
  schema.set("batch_size", std::to_string(kAmong));
  schema.check();
  recipe->settle();

  testing::TemporaryFolder folder;
  const auto training = captioned(folder.path() + "/train", kTraining, 1, recipe->data);
  const auto held_out = captioned(folder.path() + "/held-out", 2 * kAmong, 2, recipe->data);
  const auto seed = static_cast<uint64_t>(recipe->train.seed);
  torch::manual_seed(random_key(seed, "weights"));
  const std::unique_ptr<Task> task = recipe->make_task();
  BatchLoader training_batches(training, recipe->data, seed, {recipe->batch_size}),
      held_out_batches(held_out, recipe->data, seed, {recipe->batch_size});
  TrainerParts parts{*task, training_batches};
  parts.validation = &held_out_batches;
  parts.config = schema.json();
  Trainer trainer(std::move(parts), recipe->train);
  for (int64_t i = 0; i < kSteps; ++i) trainer.step();
  const ValidationReport after = trainer.validate().front();
  // The figures that every validation must have, beside their chance levels.
  for (const char* direction : {"text_to_audio", "audio_to_text"}) {
    for (const char* figure : {"_recall_1", "_recall_5", "_recall_10", "_median_rank"})
      std::printf("  %s%s %.3f (guessing %.3f)\n", direction, figure,
                  value_of(after, std::string(direction) + figure),
                  task->chance_levels().at(std::string(direction) + figure));
    EXPECT_GE(value_of(after, std::string(direction) + "_recall_1"), 10.0 / kAmong);
    EXPECT_LT(value_of(after, std::string(direction) + "_median_rank"), kAmong / 4.0);
  }
  EXPECT_GT(value_of(after, "temperature"), 0);
  EXPECT_LT(value_of(after, "audio_alike"), 0.9);

  // It names the instrument of the melody, which captions say in words.
  const auto embedding = open_mulan(FoundCheckpoint{"trained", trainer.checkpoint()});
  musiclm::EvaluatedPairs pairs;
  std::vector<std::string> paths;
  for (const ManifestEntry& entry : held_out->entries()) {
    paths.push_back(entry.path);
    pairs.texts.push_back(entry.text);
  }
  pairs.audio = musiclm::embed_files(*embedding, paths);
  const std::vector<std::string> instruments = {"plucked string melody", "bell melody", "organ melody"};
  const musiclm::ZeroShotTable named =
      musiclm::evaluate_zero_shot(pairs, musiclm::ZeroShot(*embedding, instruments, {"{}"}, 1));
  const auto asked = named.confusion.sum().item<int64_t>();
  std::printf("  instrument named right %.3f of %d (guessing 0.333, the most frequent %.3f)\n",
              named.accuracy(), static_cast<int>(asked), named.majority());
  ASSERT_GE(asked, kAmong);
  // More than three spreads of guessing.
  EXPECT_GT(named.accuracy(), 1.0 / 3 + 3 * std::sqrt(2.0 / 9 / static_cast<double>(asked)));
}

}  // namespace musiclm_learning_test
}  // namespace melete

// It learns: the tiny recipe, trained briefly on synthetic music, reconstructs pieces that it has never
// heard.
#include <gtest/gtest.h>
#include <torch/utils.h>
#include <unistd.h>

#include <filesystem>

#include "core/base/random.h"
#include "core/engine.h"
#include "data/base/synth_music.h"
#include "data/loader.h"
#include "run/reporter.h"
#include "systems/system.h"
#include "train/trainer.h"

namespace melete {
namespace learning_test {

namespace fs = std::filesystem;

double value_of(const ValidationReport& report, const std::string& name) {
  for (const auto& [key, value] : report.losses)
    if (key == name) return value;
  throw std::runtime_error("validation says nothing of " + name);
}

std::shared_ptr<AudioDataset> synthesized(const fs::path& folder, int64_t count, uint64_t seed,
                                          const RecordingsConfig& config) {
  SynthOptions options;
  options.folder = folder.string();
  options.count = count;
  options.seed = seed;
  options.rate_hz = 16000;
  options.seconds = 3;
  options.format = "wav";
  synth_music(options);
  return std::make_shared<AudioDataset>(load_entries(options.folder), config);
}

TEST(Learning, TinyRecipeReconstructsWhatItHasNotHeard) {
  set_threads(0);
  constexpr int64_t kSteps = 80;
  const auto made = make_recipe("soundstream");
  auto* recipe = dynamic_cast<RecordingsRecipe*>(made.get());
  ASSERT_NE(recipe, nullptr);
  Schema schema = recipe->schema();
  schema.apply_file(MELETE_SOURCE_DIR "/recipes/soundstream/tiny.toml");
  schema.set("train.steps", std::to_string(kSteps));
  schema.check();
  recipe->settle();

  std::string pattern = (fs::temp_directory_path() / "melete-learning-XXXXXX").string();
  const fs::path folder = ::mkdtemp(pattern.data());
  const auto training = synthesized(folder / "train", 48, 1, recipe->data);
  const auto held_out = synthesized(folder / "held-out", 12, 2, recipe->data);
  const auto seed = static_cast<uint64_t>(recipe->train.seed);
  torch::manual_seed(random_key(seed, "weights"));
  const std::unique_ptr<Task> task = recipe->make_task();
  BatchLoader training_batches(training, recipe->data, seed, {recipe->batch_size}),
      held_out_batches(held_out, recipe->data, seed, {recipe->batch_size});
  TrainerParts parts{*task, training_batches};
  parts.validation = &held_out_batches;
  parts.config = schema.json();
  Trainer trainer(std::move(parts), recipe->train);

  const ValidationReport before = trainer.validate().front();
  for (int64_t i = 0; i < kSteps; ++i) trainer.step();
  EXPECT_EQ(trainer.health().bad_in_a_row(), 0);
  const ValidationReport after = trainer.validate().front();
  for (const char* name :
       {"mel_distance", "si_sdr", "extended_stoi", "steady_tones", "code_use", "perplexity"}) {
    RecordProperty(std::string(name) + "_before", std::to_string(value_of(before, name)));
    RecordProperty(std::string(name) + "_after", std::to_string(value_of(after, name)));
    std::printf("%s: %.3f -> %.3f\n", name, value_of(before, name), value_of(after, name));
  }
  EXPECT_LT(value_of(after, "mel_distance"), 0.65 * value_of(before, "mel_distance"));
  // Before its first step the codec is a plain transform codec with codes placed by k-means: not a low start.
  EXPECT_GT(value_of(before, "si_sdr"), -6);
  EXPECT_GT(value_of(after, "si_sdr"), 4);
  EXPECT_GT(value_of(after, "extended_stoi"), value_of(before, "extended_stoi") + 0.08);
  EXPECT_GT(value_of(after, "code_use"), 0.4);
  fs::remove_all(folder);
}

}  // namespace learning_test
}  // namespace melete

// What holds for every recipe in the list, present and future; and that a new system is one file and one
// line.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "base/temporary_folder.h"
#include "cli/app.h"
#include "core/base/error.h"
#include "every_recipe.h"
#include "nn/draws.h"
#include "run/checkpoint.h"
#include "run/run_folder.h"

namespace melete {
namespace recipes_test {

namespace fs = std::filesystem;
using melete::testing::TemporaryFolder;

void expect_goes_on_bit_for_bit(const std::string& name, const std::function<void(Schema&)>& change = {}) {
  Prepared one = prepare(name, 2, change), two = prepare(name, 2, change);
  Trainer whole({*one.task, *one.batches}, one.config), resumed({*two.task, *two.batches}, two.config);
  whole.step();
  const Checkpoint kept = whole.checkpoint();
  // Deep copies: the run goes on and changes its tensors in place.
  Checkpoint stored;
  stored.meta = kept.meta;
  for (const auto& [key, tensor] : kept.tensors) stored.tensors[key] = tensor.clone();
  resumed.load(stored);
  for (int step = 0; step < 2; ++step) {
    const StepReport a = whole.step(), b = resumed.step();
    ASSERT_FALSE(a.losses.empty());
    EXPECT_FALSE(a.skipped) << a.skip_reason;
    EXPECT_EQ(a.losses, b.losses) << "step " << a.step;
  }
  const at::NoGradGuard no_grad;
  one.task->model().eval();
  SeededDraws draws(1);
  StepContext context;
  context.training = false;
  context.draws = &draws;
  EXPECT_TRUE(std::isfinite(one.task->validate(one.batches->batch(0), context).total.item<double>()));
}

TEST(EveryRecipe, TrainsValidatesAndGoesOnBitForBit) {
  add_toy();
  for (const std::string& name : recipe_names()) {
    SCOPED_TRACE(name);
    ASSERT_FALSE(name != "toy-matrix" && tiny_file(name).empty()) << "no small recipe of " << name;
    expect_goes_on_bit_for_bit(name);
  }
}

TEST(EveryRecipe, GoesOnBitForBitWithMoreParts) {
  for (const VariedRecipe& varied : varied_recipes()) {
    SCOPED_TRACE(varied.label);
    expect_goes_on_bit_for_bit(varied.recipe, [&](Schema& settings) { varied.apply(settings); });
  }
}

// Two steps in float32 and in bf16: rounded factors change the losses a little, and nothing else.
void expect_trains_in_bf16(const std::string& name, const std::function<void(Schema&)>& change = {}) {
  SCOPED_TRACE(name);
  setenv("MELETE_BF16", "always", 1);  // whatever this processor has
  Prepared exact = prepare(name, 2, change), rounded = prepare(name, 2, change);
  rounded.config.precision = "bf16";
  Trainer by_float({*exact.task, *exact.batches}, exact.config),
      by_bf16({*rounded.task, *rounded.batches}, rounded.config);
  for (int step = 0; step < 2; ++step) {
    const StepReport a = by_float.step();
    StepReport b;
    EXPECT_NO_THROW(b = by_bf16.step());
    EXPECT_FALSE(b.skipped) << b.skip_reason;
    EXPECT_EQ(a.losses.size(), b.losses.size());
    for (size_t i = 0; i < b.losses.size(); ++i)
      EXPECT_NEAR(a.losses[i].second, b.losses[i].second, 0.05 * std::abs(a.losses[i].second) + 0.05)
          << a.losses[i].first;
  }
  unsetenv("MELETE_BF16");
}

TEST(EveryRecipe, TrainsInBf16) {
  for (const std::string& name : recipe_names()) expect_trains_in_bf16(name);
}

// Small recipes do without discriminators.
TEST(EveryRecipe, TrainsInBf16WithDiscriminators) {
  expect_trains_in_bf16("vqgan", [](Schema& s) {
    s.set("model.loss.adversarial", "hinge");
    s.set("model.discriminator.layers", "2");
  });
  expect_trains_in_bf16("vocos", [](Schema& s) { s.set("adversarial", "true"); });
  expect_trains_in_bf16("soundstream", [](Schema& s) {
    s.set("model.loss.adversarial_weight", "1");
    s.set("model.loss.feature_weight", "1");
  });
}

TEST(EveryRecipe, IsFoundByItsName) {
  for (const std::string& name : recipe_names()) EXPECT_EQ(make_recipe(name)->name(), name);
  EXPECT_THROW(make_recipe("soundstreem"), UsageError);
}

// Nothing but add_system(): it trains from the command line, goes on, is timed, exported and started from.
// Its recipe trains for an epoch and so names no steps.
TEST(Bench, TimesMulan) {
  std::vector<std::string> words = {"bench",     "mulan", "--threads",    "1",
                                    "--repeats", "1",     "--batch_size", "2"};
  for (const char* tower : {"audio", "text"})
    for (const auto& [size, value] : std::map<std::string, std::string>{{"dim", "32"}, {"depth", "1"}}) {
      words.push_back(fmt::format("--model.{}.transformer.{}", tower, size));
      words.push_back(value);
    }
  EXPECT_EQ(run_program(words), 0);
}

TEST(ANewSystem, IsOneFileAndOneLine) {
  add_toy();
  const TemporaryFolder folder;
  const std::string data = folder / "data", run = folder / "run";
  ASSERT_EQ(run_program({"data", "synth", "-o", data, "--count", "4", "--seconds", "1", "--rate", "8000",
                         "--format", "wav"}),
            0);
  const std::vector<std::string> words = {"train",
                                          "toy-matrix",
                                          "--data",
                                          data,
                                          "--out",
                                          run,
                                          "--steps",
                                          "4",
                                          "--threads",
                                          "1",
                                          "--train.ema.update_after_step",
                                          "0",
                                          "--train.ema.update_every",
                                          "1"};
  ASSERT_EQ(run_program(words), 0);
  ASSERT_EQ(run_program({"train", "toy-matrix", "--out", run, "--resume", "--steps", "6"}), 0);
  ASSERT_EQ(run_program({"bench", "toy-matrix", "--threads", "1", "--repeats", "1"}), 0);
  ASSERT_EQ(run_program({"export", run, "-o", folder / "toy.safetensors"}), 0);
  ASSERT_EQ(run_program({"train", "toy-matrix", "--data", data, "--out", folder / "again", "--steps", "2",
                         "--threads", "1", "--from", folder / "toy.safetensors"}),
            0);
  // The averaged weights as those that it goes on from; the rest of the checkpoint stays.
  const std::string settled = folder / "settled";
  ASSERT_EQ(run_program({"export", run, "-o", settled, "--ema-as-model"}), 0);
  const Checkpoint before = latest_usable(run, {})->checkpoint,
                   after = latest_usable(settled, {})->checkpoint;
  const at::Tensor average = before.tensors.at("ema.average.weight");
  EXPECT_FALSE(average.equal(before.tensors.at("model.weight")))
      << "nothing to show: the average is the model";
  EXPECT_TRUE(after.tensors.at("model.weight").equal(average));
  EXPECT_EQ(after.meta, before.meta);
  for (const auto& [name, tensor] : before.tensors)
    EXPECT_TRUE(name.starts_with("model.") || tensor.equal(after.tensors.at(name))) << name;
  ASSERT_EQ(run_program({"train", "toy-matrix", "--out", settled, "--resume", "--steps", "8"}), 0);
  EXPECT_EQ(latest_usable(settled, {})->checkpoint.step(), 8);
  EXPECT_EQ(run_program({"export", run, "-o", settled, "--ema-as-model"}), 1)
      << "an old run was written over";
  EXPECT_EQ(run_program({"export", run, "-o", folder / "toy.pt", "--ema-as-model"}), 1);
  EXPECT_EQ(run_program({"export", folder / "toy.safetensors", "-o", folder / "x", "--ema-as-model"}), 1)
      << "weights for inference have no average";

  // Data that is not there leaves no run behind; a folder of tokens: feed_test.cpp.
  EXPECT_EQ(run_program({"train", "toy-matrix", "--data", folder / "nothing", "--out", folder / "none",
                         "--steps", "1"}),
            1);
  EXPECT_FALSE(fs::exists(folder / "none"));
  // Nor does a schedule that cannot be.
  EXPECT_EQ(
      run_program({"train", "soundstream", "--config", tiny_file("soundstream"), "--data", data, "--out",
                   folder / "none", "--generator.schedule.kind", "multi_step", "--threads", "1"}),
      1);
  EXPECT_FALSE(fs::exists(folder / "none"));
}

// 4 recordings, of which 1 is held out: 3 items, 2 a step.
TEST(Epochs, BecomeStepsOnceTheDataAreKnown) {
  add_toy();
  const TemporaryFolder folder;
  const std::string data = folder / "data", run = folder / "run";
  ASSERT_EQ(run_program({"data", "synth", "-o", data, "--count", "4", "--seconds", "1", "--rate", "8000",
                         "--format", "wav"}),
            0);
  const auto train = [&](std::vector<std::string> more) {
    std::vector<std::string> words = {"train", "toy-matrix", "--out", run, "--threads", "1"};
    words.insert(words.end(), more.begin(), more.end());
    return run_program(words);
  };
  const auto steps = [&] { return latest_usable(run, {})->checkpoint.step(); };
  ASSERT_EQ(train({"--data", data, "--batch-size", "2", "--epochs", "3"}), 0);
  EXPECT_EQ(steps(), 5);  // of 9 items, not 3 times 2 batches
  ASSERT_EQ(train({"--resume", "--epochs", "4"}), 0);
  EXPECT_EQ(steps(), 6);
  ASSERT_EQ(train({"--resume", "--steps", "8"}), 0);  // what is said last counts
  EXPECT_EQ(steps(), 8);
  EXPECT_EQ(train({"--resume", "--steps", "9", "--epochs", "9"}), 2);
}

}  // namespace recipes_test
}  // namespace melete

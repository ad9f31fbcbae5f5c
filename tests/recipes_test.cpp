// What holds for every recipe in the list, present and future; and that a new system is one file and one
// line.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/temporary_folder.h"
#include "cli/app.h"
#include "core/base/error.h"
#include "measure/noise_batches.h"
#include "nn/draws.h"
#include "run/checkpoint.h"
#include "systems/foreign.h"
#include "systems/system.h"
#include "train/feed.h"
#include "train/trainer.h"

namespace melete {
namespace {

namespace fs = std::filesystem;
using melete::testing::TemporaryFolder;

// A toy system: it learns a matrix from recordings.
class ToyRecipe : public RecordingsRecipe {
 public:
  class ToyTask : public Task {
   public:
    explicit ToyTask(nlohmann::ordered_json whole) : whole_(std::move(whole)) {}
    std::string name() const override { return "toy-matrix"; }
    torch::nn::Module& model() override { return *net_; }
    std::vector<Phase> phases() override {
      Phase phase;
      phase.name = "matrix";
      phase.groups = {{"matrix", parameters_of_net()}};
      phase.loss = [this](const Batch& batch, const StepContext&) { return losses(batch); };
      return {phase};
    }
    nlohmann::ordered_json config() const override { return whole_; }
    Losses validate(const Batch& batch, const StepContext&) override { return losses(batch); }
    void write_samples(const Batch&, const std::string&, SampleWriter&) override {}

   private:
    NamedTensors parameters_of_net() {
      NamedTensors all;
      for (const auto& item : net_->named_parameters()) all.emplace_back(item.key(), item.value());
      return all;
    }
    Losses losses(const Batch& batch) {
      const at::Tensor x = batch["wave"].narrow(1, 0, 16);
      return {at::mse_loss(net_(x), x * 2), {}};
    }
    nlohmann::ordered_json whole_;
    torch::nn::Linear net_{16, 16};
  };

  ToyRecipe() { data.segment_samples = 64; }
  std::string name() const override { return "toy-matrix"; }
  void settle() override { data.rates_hz = {8000}; }
  std::unique_ptr<Task> make_task() override { return std::make_unique<ToyTask>(schema().json()); }
  Feed open(const OpenRequest& request) override { return open_recordings(*this, request); }
  Batch example(int64_t items) override {
    Batch batch;
    batch.set("wave", at::randn({items, 64}));
    return batch;
  }

 protected:
  void describe_task(Schema&) override {}
};

// The one line.
void add_toy() {
  static const bool added = [] {
    add_system(
        {"toy", "for tests", {{"toy-matrix", "a matrix", [] { return std::make_unique<ToyRecipe>(); }, {}}}});
    return true;
  }();
  (void)added;
}

// The small settings of a recipe, where it has some: recipes/<room>/<name>_tiny.toml, or the room's
// tiny.toml.
std::string tiny_file(std::string name) {
  std::replace(name.begin(), name.end(), '-', '_');
  for (const auto& entry : fs::recursive_directory_iterator(fs::path(MELETE_SOURCE_DIR) / "recipes")) {
    const fs::path& path = entry.path();
    if (path.stem() == name + "_tiny" || (path.stem() == "tiny" && path.parent_path().filename() == name))
      return path.string();
  }
  return "";
}

struct Prepared {
  std::unique_ptr<Recipe> recipe;
  std::unique_ptr<Task> task;
  std::unique_ptr<NoiseBatches> batches;
  TrainerConfig config;
};

Prepared prepare(const std::string& name, int64_t items) {
  Prepared made;
  made.recipe = make_recipe(name);
  Schema schema = made.recipe->schema();
  if (const std::string file = tiny_file(name); !file.empty()) schema.apply_file(file);
  schema.check();
  made.recipe->settle_on_paper();
  torch::manual_seed(1);
  made.task = made.recipe->make_task();
  made.batches = std::make_unique<NoiseBatches>(made.recipe->example(items));
  made.config = made.recipe->train;
  made.config.steps = 1000;
  return made;
}

TEST(EveryRecipe, TrainsValidatesAndGoesOnBitForBit) {
  add_toy();
  for (const std::string& name : recipe_names()) {
    SCOPED_TRACE(name);
    ASSERT_FALSE(name != "toy-matrix" && tiny_file(name).empty()) << "no small recipe of " << name;
    Prepared one = prepare(name, 2), two = prepare(name, 2);
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
}

TEST(EveryRecipe, IsFoundByItsName) {
  for (const std::string& name : recipe_names()) EXPECT_EQ(make_recipe(name)->name(), name);
  EXPECT_THROW(make_recipe("soundstreem"), UsageError);
}

// Nothing but add_system(): it trains from the command line, goes on, is timed, exported and started from.
TEST(ANewSystem, IsOneFileAndOneLine) {
  add_toy();
  const TemporaryFolder folder;
  const std::string data = folder / "data", run = folder / "run";
  ASSERT_EQ(run_program({"data", "synth", "-o", data, "--count", "4", "--seconds", "1", "--rate", "8000",
                         "--format", "wav"}),
            0);
  const std::vector<std::string> words = {"train", "toy-matrix", "--data", data,        "--out",
                                          run,     "--steps",    "4",      "--threads", "1"};
  ASSERT_EQ(run_program(words), 0);
  ASSERT_EQ(run_program({"train", "toy-matrix", "--out", run, "--resume", "--steps", "6"}), 0);
  ASSERT_EQ(run_program({"bench", "toy-matrix", "--threads", "1", "--repeats", "1"}), 0);
  ASSERT_EQ(run_program({"export", run, "-o", folder / "toy.safetensors"}), 0);
  ASSERT_EQ(run_program({"train", "toy-matrix", "--data", data, "--out", folder / "again", "--steps", "2",
                         "--threads", "1", "--from", folder / "toy.safetensors"}),
            0);
  // A folder of tokens is not a folder of recordings, and leaves no run behind.
  EXPECT_EQ(run_program({"train", "toy-matrix", "--data", folder / "nothing", "--out", folder / "none",
                         "--steps", "1"}),
            1);
  EXPECT_FALSE(fs::exists(folder / "none"));
}

}  // namespace
}  // namespace melete

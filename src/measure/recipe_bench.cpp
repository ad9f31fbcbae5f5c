#include "measure/recipe_bench.h"

#include <fmt/format.h>
#include <torch/utils.h>

#include "core/base/error.h"
#include "core/base/random.h"
#include "dist/group.h"
#include "measure/noise_batches.h"
#include "train/trainer.h"

namespace melete {

namespace {

class RecipeBenchmark final : public Benchmark {
 public:
  explicit RecipeBenchmark(std::unique_ptr<Recipe> recipe) : recipe_(std::move(recipe)) {}

  // The recipe has one table of its own, made once: options point into it.
  void describe(Schema& schema) override { schema = recipe_->schema(); }

  void run(Bench& bench, const std::string& precision) override {
    recipe_->settle_on_paper();
    torch::manual_seed(1);
    const std::unique_ptr<Task> task = recipe_->make_task();
    NoiseBatches batches(recipe_->example(recipe_->batch_size));
    TrainerConfig config = recipe_->train;
    config.precision = precision;
    config.device = "cpu";
    Trainer trainer({*task, batches}, config);
    BenchRow& row = bench.measure(
        recipe_->name() + ".train_step", [&] { trainer.step(); }, true);
    row.note = fmt::format("{:.2f} items/s",
                           static_cast<double>(recipe_->batch_size * config.accumulate) / row.seconds);
  }

 private:
  std::unique_ptr<Recipe> recipe_;
};

}  // namespace

std::unique_ptr<Benchmark> make_recipe_benchmark(std::unique_ptr<Recipe> recipe) {
  return std::make_unique<RecipeBenchmark>(std::move(recipe));
}

double ranks_step_seconds(Group& group, Recipe& recipe, const std::string& precision, int repeats) {
  require(recipe.batch_size % group.size() == 0, "[bench] a batch of {} does not divide over {} processes",
          recipe.batch_size, group.size());
  recipe.settle_on_paper();
  torch::manual_seed(1);
  const std::unique_ptr<Task> task = recipe.make_task();
  torch::manual_seed(random_key(1, "noise", {static_cast<uint64_t>(group.rank())}));
  NoiseBatches source(recipe.example(recipe.batch_size / group.size()));
  TrainerConfig settings;
  settings.precision = precision;
  settings.steps = 1000000;
  TrainerParts parts{*task, source};
  parts.group = &group;
  Trainer trainer(std::move(parts), settings);
  trainer.step();  // places codebooks, fills caches
  group.barrier();
  at::Tensor seconds = at::full({1}, median_seconds(repeats, [&] { trainer.step(); }), at::kDouble);
  group.mean(seconds);
  return seconds.item<double>();
}

}  // namespace melete

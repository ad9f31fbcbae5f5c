#include "measure/cost.h"

#include <algorithm>
#include <chrono>

#include "core/engine.h"
#include "measure/noise_batches.h"
#include "train/trainer.h"

namespace melete {

namespace {

constexpr int64_t kTimedSteps = 3;       // after a first one, which places codebooks and fills caches
constexpr double kPatienceSeconds = 30;  // no further step is timed after this

}  // namespace

TrainingCost training_cost(Recipe& recipe, Task& task, const Feed& feed) {
  TrainingCost cost;
  const TrainerConfig& config = recipe.train;
  const PlanSizes sizes = sizes_of(recipe, task);
  cost.checkpoint_bytes = sizes.checkpoint_bytes;
  cost.kept_bytes = sizes.model_bytes + sizes.gradient_bytes + sizes.optimiser_bytes + sizes.average_bytes;
  const int64_t saved =
      config.save_every > 0 ? (config.steps + config.save_every - 1) / config.save_every : 1;
  cost.checkpoints = std::min(saved, config.keep_last);
  if (config.keep_every > 0)
    cost.checkpoints = std::min(saved, cost.checkpoints + config.steps / config.keep_every);
  int64_t sources = 0;
  for (const Phase& phase : task.phases()) {
    int64_t count = 0;
    for (const ParameterGroup& group : phase.groups)
      for (const auto& [name, tensor] : group.parameters) count += tensor.numel();
    cost.parameters.emplace_back(phase.name, count);
    sources += phase.new_batches ? 1 : 0;
  }

  NoiseBatches batches(recipe.example(recipe.batch_size));
  Trainer trainer({task, batches}, config);
  reset_peak_memory();
  std::vector<double> seconds;
  double spent = 0;
  for (int64_t i = 0; i <= kTimedSteps && (i == 0 || spent < kPatienceSeconds); ++i) {
    const auto begin = std::chrono::steady_clock::now();
    trainer.step();
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    spent += seconds.back();
  }
  if (seconds.size() > 1) seconds.erase(seconds.begin());
  std::sort(seconds.begin(), seconds.end());
  cost.step_seconds = seconds[seconds.size() / 2];
  cost.timed_steps = static_cast<int64_t>(seconds.size());
  cost.peak_bytes = peak_memory_bytes();

  const auto steps = static_cast<double>(config.steps);
  cost.steps_seconds = steps * cost.step_seconds;
  cost.items =
      steps * static_cast<double>(config.accumulate * recipe.batch_size * std::max<int64_t>(sources, 1));
  if (feed.training_seconds > 0 && recipe.item_seconds() > 0)
    cost.passes = cost.items * recipe.item_seconds() / feed.training_seconds;
  else if (feed.training_items > 0)
    cost.passes = cost.items / static_cast<double>(feed.training_items);
  return cost;
}

}  // namespace melete

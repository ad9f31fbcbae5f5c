#include "train/one_batch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>

#include "core/base/error.h"
#include "core/base/human.h"
#include "train/trainer.h"

namespace melete {

namespace {

constexpr double kMuch = 0.2;     // of where it began, or of chance: fell as it should
constexpr double kLittle = 0.03;  // less: did not fall
constexpr size_t kLastSteps = 8;  // whose mean is where a training loss ended

// The task with rates that stay: a curve made for a hundred thousand steps would hardly have begun.
class OnOneBatch : public Task {
 public:
  OnOneBatch(Task& task, int64_t steps) : task_(task), steps_(steps) {}

  std::string name() const override { return task_.name(); }
  torch::nn::Module& model() override { return task_.model(); }
  std::vector<Phase> phases() override {
    std::vector<Phase> phases = task_.phases();
    for (Phase& phase : phases) {
      ScheduleConfig schedule;
      schedule.warmup_steps = std::min(phase.schedule.warmup_steps, steps_ / 10);
      phase.schedule = schedule;
    }
    return phases;
  }
  nlohmann::ordered_json config() const override { return task_.config(); }
  Losses validate(const Batch& batch, const StepContext& context) override {
    return task_.validate(batch, context);
  }
  void write_samples(const Batch& batch, const std::string& label, SampleWriter& writer) override {
    task_.write_samples(batch, label, writer);
  }
  MainFigure main_figure() const override { return task_.main_figure(); }
  std::map<std::string, double> chance_levels() const override { return task_.chance_levels(); }
  bool averaged(const std::string& name) const override { return task_.averaged(name); }
  void save_state(TensorMap& tensors) const override { task_.save_state(tensors); }
  void load_state(const TensorMap& tensors) override { task_.load_state(tensors); }

 private:
  Task& task_;
  int64_t steps_;
};

std::optional<double> figure_of(const ValidationReport& report, const std::string& name) {
  for (const auto& [figure, value] : report.losses)
    if (figure == name) return value;
  return {};
}

// Passes everything on, and remembers the first phase's loss.
class LossesSeen : public Reporters {
 public:
  void step(const StepReport& report) override {
    Reporters::step(report);
    if (report.losses.empty() || report.skipped) return;
    const auto& [name, value] = report.losses.front();
    if (last.empty()) first = value;
    last.push_back(value);
    if (last.size() > kLastSteps) last.pop_front();
    if (const auto found = report.chance_levels.find(name); found != report.chance_levels.end())
      chance = found->second;
  }
  double mean_of_last() const {
    double sum = 0;
    for (const double value : last) sum += value;
    return sum / static_cast<double>(last.size());
  }

  double first = 0;
  std::deque<double> last;
  std::optional<double> chance;
};

// How much of `from` is gone, or has come.
double gain(double from, double to, bool higher_is_better) {
  const double change = higher_is_better ? to - from : from - to;
  return change / std::max(std::abs(from), 1e-9);
}

}  // namespace

OneBatchResult overfit_one_batch(Task& task, BatchSource& source, TrainerConfig config, Reporter& reporter,
                                 const std::atomic<bool>& stop) {
  config.validate_every = config.sample_every = config.save_every = 0;
  config.validate_batches = 1;
  config.ema.enabled = false;  // what is asked is what the weights have learned, at once
  OnOneBatch alone(task, config.steps);
  OneBatch batches(source.batch(0));
  LossesSeen seen;
  seen.add(reporter);
  TrainerParts parts{alone, batches};
  parts.validation = &batches;
  parts.reporter = &seen;
  parts.about.data = {fmt::format("one batch of {} items, again and again", batches.items())};
  Trainer trainer(std::move(parts), config);

  const MainFigure main = task.main_figure();
  const ValidationReport before = trainer.validate().front();
  const RunResult run = trainer.run(stop);
  require(run.outcome != Outcome::failed, "{}", run.reason);
  require(!seen.last.empty(), "[overfit_one_batch] no step could be taken");
  const ValidationReport after = trainer.validate().front();
  reporter.validation(after);

  // Validation's loss is not always the training's; where a figure of quality is named, it decides.
  OneBatchResult result;
  result.figure = main.name;
  const auto was = figure_of(before, main.name), is = figure_of(after, main.name);
  if (main.name != "loss" && was && is) {
    result.before = *was;
    result.after = *is;
    if (const auto found = after.chance_levels.find(main.name); found != after.chance_levels.end())
      result.chance = found->second;
  } else {
    result.figure = "loss";
    result.before = seen.first;
    result.after = seen.mean_of_last();
    result.chance = seen.chance;
  }
  const bool higher = result.figure == main.name && main.higher_is_better;
  double share = gain(result.before, result.after, higher);
  // Weights may begin far worse than guessing: coming down to chance is no learning.
  if (result.chance) share = std::min(share, gain(*result.chance, result.after, higher));
  result.verdict = !std::isfinite(share) || share < kLittle ? OneBatchResult::nothing
                   : share < kMuch                          ? OneBatchResult::little
                                                            : OneBatchResult::learned;
  const std::string moved =
      fmt::format("{} went from {} to {} in {} steps on one batch{}", result.figure,
                  short_number(result.before), short_number(result.after), run.step,
                  result.chance ? " (chance " + short_number(*result.chance) + ")" : "");
  switch (result.verdict) {
    case OneBatchResult::learned:
      result.words = moved + ": it learns; data and model fit together";
      break;
    case OneBatchResult::little:
      result.words =
          moved + ": it learns, but little; try more --steps or a higher learning rate before a long run";
      break;
    case OneBatchResult::nothing:
      result.words = moved +
                     ": it learns nothing. Look at the data first (`melete data check`: silent, clipped, "
                     "texts of other files?), then at the learning rate and clip_norm";
      break;
  }
  return result;
}

}  // namespace melete

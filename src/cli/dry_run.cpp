#include "cli/dry_run.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/terminal.h"
#include "core/device.h"
#include "core/engine.h"

namespace melete {

namespace {

std::string megabytes(int64_t count) {
  return human_bytes(static_cast<double>(count));
}

// The last row of every figure that a person looks at: the main one first, then the losses.
std::vector<std::string> expected_lines(const std::optional<Expectation>& table) {
  if (!table) return {"not measured: the recipe has no table beside it (`melete recipe measure` makes one)"};
  std::vector<std::string> lines;
  const auto add = [&](const std::map<std::string, Expectation::Rows>& side, const std::string& name,
                       const char* what) {
    const auto rows = side.find(name);
    if (rows == side.end() || rows->second.empty()) return;
    const auto& [step, band] = *rows->second.rbegin();
    lines.push_back(fmt::format("{} {} {} after {} steps", what, name, band_text(band), step));
  };
  add(table->validation, table->main.name, "validation");
  if (table->main.name != "loss") add(table->validation, "loss", "validation");
  if (!table->training.empty()) add(table->training, table->training.begin()->first, "training");
  lines.push_back(fmt::format("measured on {}", table->data));
  if (!table->machine.empty())
    lines.push_back(fmt::format(
        "by {}{}", table->machine,
        table->step_seconds > 0 ? ", where a step took " + human_seconds(table->step_seconds) : ""));
  for (const std::string& unlike : table->unlike) lines.push_back("unlike here: " + unlike);
  return lines;
}

}  // namespace

std::string dry_run_text(const Recipe& recipe, const TrainingCost& cost, const Feed& feed,
                         const std::optional<Expectation>& expectation) {
  const TrainerConfig& train = recipe.train;
  TextTable table({"", ""});
  int64_t parameters = 0;
  std::string parts;
  for (const auto& [phase, count] : cost.parameters) {
    parameters += count;
    parts +=
        fmt::format("{}{} {}", parts.empty() ? "" : ", ", phase, human_count(static_cast<double>(count)));
  }
  table.row({"parameters", human_count(static_cast<double>(parameters)) +
                               (cost.parameters.size() > 1 ? " (" + parts + ")" : "")});
  table.row({"memory", fmt::format("{}{} for weights, gradients, moments and average",
                                   cost.peak_bytes > 0 ? megabytes(cost.peak_bytes) +
                                                             " in a step, data and program included; "
                                                       : "",
                                   megabytes(cost.kept_bytes))});
  table.row({"disk", fmt::format("{} checkpoint{} of {}: {} (one more while it is written)", cost.checkpoints,
                                 cost.checkpoints == 1 ? "" : "s", megabytes(cost.checkpoint_bytes),
                                 megabytes(cost.checkpoints * cost.checkpoint_bytes))});
  table.row({"a step", fmt::format("{} ({} timed on noise; batch {}{}, {} thread{}, {}, {})",
                                   human_seconds(cost.step_seconds), cost.timed_steps, recipe.batch_size,
                                   train.accumulate > 1 ? fmt::format(" x {}", train.accumulate) : "",
                                   thread_count(), thread_count() == 1 ? "" : "s",
                                   device_named(train.device, 0).str(), train.precision)});
  table.row({fmt::format("{} steps", train.steps),
             fmt::format("{}, without validation and samples", human_seconds(cost.steps_seconds))});
  for (size_t i = 0; i < feed.description.size(); ++i) table.row({i == 0 ? "data" : "", feed.description[i]});
  const double seconds = recipe.item_seconds();
  table.row(
      {"", fmt::format(
               "{} items{} in all steps{}", human_count(cost.items),
               seconds > 0 ? " of " + human_seconds(seconds) : "",
               cost.passes > 0 ? fmt::format(": {:.3g} passes over the training data", cost.passes) : "")});
  const std::vector<std::string> lines = expected_lines(expectation);
  for (size_t i = 0; i < lines.size(); ++i) table.row({i == 0 ? "expected" : "", lines[i]});
  return fmt::format("{}: nothing was started and nothing written\n{}", recipe.name(), table.text());
}

}  // namespace melete

#include "run/measured_runs.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "core/base/error.h"
#include "run/figure_names.h"

namespace melete {

namespace {

using nlohmann::json;

constexpr size_t kMostRows = 10;           // of a figure
constexpr double kLeastShare = 0.02;       // of a value, on either side, where several runs agree
constexpr double kLeastShareOfOne = 0.04;  // with a single run, which cannot say how others would differ

struct Value {
  double value = 0, deviation = 0;  // deviation: of the values that it is the mean of
};
using Curve = std::map<int64_t, Value>;
using Curves = std::map<std::string, Curve>;

struct Run {
  std::string task, label, data;
  MainFigure main;
  int64_t steps = 0;
  double step_seconds = 0;
  Curves training, validation;  // training: means over the last kTrainingWindow steps
};

Value mean_of(const std::deque<double>& values) {
  Value result;
  for (const double value : values) result.value += value / static_cast<double>(values.size());
  for (const double value : values) result.deviation += (value - result.value) * (value - result.value);
  result.deviation = std::sqrt(result.deviation / static_cast<double>(values.size()));
  return result;
}

double median_of(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

Run read_run(const std::string& folder) {
  const std::string path = folder + "/metrics.jsonl";
  std::ifstream in(path);
  require(in.good(), "[recipe measure] {} cannot be opened; expected the folder of a run", path);
  Run run;
  std::map<std::string, std::deque<double>> last;  // training losses
  std::map<std::string, Curves> by_label;
  std::vector<double> seconds;
  for (std::string line; std::getline(in, line);) {
    const json row = json::parse(line, nullptr, false);
    if (!row.is_object()) continue;  // cut by a kill
    const std::string kind = row.value("kind", "");
    const int64_t step = row.value("step", int64_t{0});
    const auto losses = row.find("losses");
    if (kind == "start") {
      run.task = row.value("task", "");
      run.main.name = row.value("main_figure", "loss");
      run.main.higher_is_better = row.value("higher_is_better", false);
      if (const auto data = row.find("data"); data != row.end() && !data->empty() && data->at(0).is_string())
        run.data = data->at(0);
    } else if (kind == "step" && losses != row.end()) {
      run.steps = std::max(run.steps, step);
      if (const auto found = row.find("seconds"); found != row.end() && found->is_number())
        seconds.push_back(*found);
      for (const auto& [name, value] : losses->items()) {
        if (!is_total_loss(name) || !value.is_number()) continue;
        auto& values = last[name];
        values.push_back(value);
        if (values.size() > static_cast<size_t>(kTrainingWindow)) values.pop_front();
        run.training[name][step] = mean_of(values);
      }
    } else if (kind == "validation" && losses != row.end()) {
      run.label = row.value("label", "");  // the averaged weights come last, and are those that are used
      for (const auto& [name, value] : losses->items())
        if (value.is_number()) by_label[run.label][name][step] = {value, 0};
    }
  }
  require(run.steps > 0, "[recipe measure] {} has no steps", path);
  run.step_seconds = median_of(seconds);
  run.validation = by_label[run.label];
  for (auto it = run.validation.begin(); it != run.validation.end();)
    it = is_one_of_many(it->first) && it->first != run.main.name ? run.validation.erase(it) : std::next(it);
  return run;
}

// Some losses have no weight in some recipes, and are 0 for ever.
bool always_zero(const Curve& curve) {
  return std::all_of(curve.begin(), curve.end(), [](const auto& entry) { return entry.second.value == 0; });
}

// Steps that all runs have, thinned out, the last one always among them.
std::vector<int64_t> common_steps(const std::vector<const Curve*>& curves) {
  std::vector<int64_t> steps;
  for (const auto& [step, value] : *curves.front())
    if (std::all_of(curves.begin(), curves.end(), [&](const Curve* c) { return c->count(step) > 0; }))
      steps.push_back(step);
  if (steps.size() <= kMostRows) return steps;
  std::vector<int64_t> fewer;
  const size_t every = (steps.size() + kMostRows - 1) / kMostRows;
  for (size_t i = (steps.size() - 1) % every; i < steps.size(); i += every) fewer.push_back(steps[i]);
  return fewer;
}

Band around(double low, double high, double margin, double least_share) {
  const double least = least_share * std::max(std::abs(low), std::abs(high));
  const double more = std::max(margin, least);
  return {low - more, high + more};
}

// How far the neighbours of a row are from it: half of the smaller distance, so that the steep beginning of a
// curve does not allow everything.
double neighbour_spread(const Curve& curve, int64_t step) {
  const auto here = curve.find(step);
  double spread = std::numeric_limits<double>::infinity();
  if (here != curve.begin())
    spread = std::min(spread, std::abs(std::prev(here)->second.value - here->second.value));
  if (const auto next = std::next(here); next != curve.end())
    spread = std::min(spread, std::abs(next->second.value - here->second.value));
  return std::isfinite(spread) ? spread / 2 : 0;
}

Expectation::Rows rows_of(const std::vector<const Curve*>& curves, const std::vector<int64_t>& steps) {
  Expectation::Rows rows;
  for (const int64_t step : steps) {
    double low = std::numeric_limits<double>::infinity(), high = -low, deviation = 0;
    for (const Curve* curve : curves) {
      const Value& value = curve->at(step);
      low = std::min(low, value.value);
      high = std::max(high, value.value);
      deviation = std::max(deviation, value.deviation);
    }
    if (curves.size() > 1) {
      rows[step] = around(low, high, (high - low) / 2, kLeastShare);
    } else {
      // A training loss is a mean already, whose steps say how much batches differ.
      const double spread = deviation > 0 ? deviation : neighbour_spread(*curves.front(), step);
      rows[step] = around(low, high, spread, kLeastShareOfOne);
    }
  }
  return rows;
}

}  // namespace

Expectation measure_runs(const std::vector<std::string>& run_folders, const std::string& data,
                         const std::string& machine) {
  require(!run_folders.empty(), "[recipe measure] expected the folder of a run");
  std::vector<Run> runs;
  for (const std::string& folder : run_folders) {
    runs.push_back(read_run(folder));
    const Run &first = runs.front(), &run = runs.back();
    require(run.task == first.task && run.label == first.label && run.steps == first.steps,
            "[recipe measure] expected runs of one recipe, got {} of {} steps in {} and {} of {} steps in {}",
            first.task, first.steps, run_folders.front(), run.task, run.steps, folder);
  }
  const Run& first = runs.front();
  Expectation table;
  table.task = first.task;
  table.data = data.empty() ? first.data : data;
  table.machine = machine;
  table.label = first.label;
  table.main = first.main;
  table.steps = first.steps;
  table.runs = static_cast<int64_t>(runs.size());
  table.step_seconds = first.step_seconds;
  std::set<int64_t> validated;
  for (const auto& [name, curve] : first.validation) {
    if (always_zero(curve)) continue;
    std::vector<const Curve*> curves;
    for (const Run& run : runs)
      if (const auto found = run.validation.find(name); found != run.validation.end())
        curves.push_back(&found->second);
    if (curves.size() != runs.size()) continue;
    const std::vector<int64_t> steps = common_steps(curves);
    validated.insert(steps.begin(), steps.end());
    table.validation[name] = rows_of(curves, steps);
  }
  // Training losses at the same steps, where there are any.
  for (const auto& [name, curve] : first.training) {
    std::vector<const Curve*> curves;
    for (const Run& run : runs)
      if (const auto found = run.training.find(name); found != run.training.end())
        curves.push_back(&found->second);
    if (curves.size() != runs.size()) continue;
    std::vector<int64_t> steps = common_steps(curves);
    if (!validated.empty()) {
      std::set<int64_t> wanted = validated;
      wanted.insert(first.steps);
      steps.clear();
      for (const int64_t step : wanted)
        if (std::all_of(curves.begin(), curves.end(), [&](const Curve* c) { return c->count(step) > 0; }))
          steps.push_back(step);
    }
    table.training[name] = rows_of(curves, steps);
  }
  return table;
}

}  // namespace melete

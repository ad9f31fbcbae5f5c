// What a recipe gives: figures of training and validation by step, measured on named data and a named
// machine. Stands beside its recipe (tiny.toml has tiny.expect.toml) and, once a run has begun with it, in
// the run's folder:
//
//   task = "soundstream"
//   data = "240 pieces of `melete data synth --kind music`"
//   machine = "..."
//   steps = 600
//   main = "mel_distance"      # the figure that says how good it is
//   label = "ema"              # the weights that were validated
//   [training.loss]
//   100 = [3.1, 3.6]           # step = [low, high]
//   [validation.mel_distance]
//   100 = [1.3, 1.6]
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "run/reporter.h"

namespace melete {

// Steps whose mean is a training loss, in tables and where a run is held against one.
constexpr int64_t kTrainingWindow = 16;

struct Expectation {
  using Rows = std::map<int64_t, Band>;  // by step

  std::string task, data, machine, label;
  MainFigure main;
  int64_t steps = 0;        // of the measured runs
  int64_t runs = 1;         // that were measured
  double step_seconds = 0;  // median; 0: not known
  std::map<std::string, Rows> training, validation;
  // Of a run that goes by this table: its settings that are not the recipe's, as "batch_size 2 instead of 4".
  std::vector<std::string> unlike;

  // Between two rows along the line that joins them; nothing before the first row and after the last.
  static std::optional<Band> at(const std::map<std::string, Rows>& side, const std::string& name,
                                int64_t step);
};

// Throws an Error that names the file and the key.
Expectation read_expectation(const std::string& path);
std::string expectation_text(const Expectation& table);  // as TOML

// Where the table of a recipe file is looked for, and where a run keeps its own.
std::string expectation_beside(const std::string& recipe_path);
std::string expectation_of_run(const std::string& run_folder);
bool is_expectation_file(const std::string& path);

// "1.300 to 1.600"
std::string band_text(const Band& band);

}  // namespace melete

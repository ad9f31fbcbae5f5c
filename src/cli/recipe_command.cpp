#include "cli/recipe_command.h"

#include <fmt/format.h>

#include "cli/arguments.h"
#include "core/base/error.h"
#include "core/engine.h"
#include "io/base/atomic_file.h"
#include "run/measured_runs.h"

namespace melete {

int recipe_command(const std::vector<std::string>& args) {
  std::string word, data, machine, out;
  std::vector<std::string> runs;
  Arguments arguments("recipe", "what a recipe gives: a table of figures by step, from finished runs of it");
  arguments.word("what", word, "measure: make the table").one_of({"measure"});
  arguments.rest("runs", runs, "folders of finished runs of one recipe; several seeds give truer bands");
  arguments.option("out", out,
                   "the table; beside recipes/x/tiny.toml it is found as recipes/x/tiny.expect.toml");
  arguments.option("data", data,
                   "what the runs were trained on, in words; when not given, as the run counts it");
  arguments.option("machine", machine, "in words; when not given, this one");
  arguments.alias("o", "out");
  arguments.example(
      "recipe measure runs/codec-1 runs/codec-2 -o recipes/soundstream/tiny.expect.toml "
      "--data \"240 pieces of `melete data synth --kind music`\"");
  if (!arguments.parse(args)) return 0;
  if (runs.empty()) throw UsageError("expected the folders of finished runs, got none");
  if (out.empty()) throw UsageError("no file for the table; give -o recipes/SYSTEM/NAME.expect.toml");
  if (machine.empty()) {
    const EngineInfo info = engine_info();
    machine = fmt::format("{} of {} cores", info.cpu, info.available);
  }
  const Expectation table = measure_runs(runs, data, machine);
  std::string command = "melete recipe measure";
  for (const std::string& run : runs) command += " " + run;
  write_file_atomically(out, fmt::format("# Made by `{} -o {}`.\n{}", command, out, expectation_text(table)));
  size_t rows = 0;
  for (const auto* side : {&table.training, &table.validation})
    for (const auto& [name, figure] : *side) rows += figure.size();
  fmt::print("wrote {}: {} rows of {} figures, from {} run{} of {} steps\n", out, rows,
             table.training.size() + table.validation.size(), table.runs, table.runs == 1 ? "" : "s",
             table.steps);
  return 0;
}

}  // namespace melete

#include "cli/plan_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "cli/arguments.h"
#include "cli/terminal.h"
#include "core/base/error.h"
#include "measure/plan.h"
#include "run/expectation.h"
#include "systems/system.h"

namespace melete {

namespace {

namespace fs = std::filesystem;

std::string bytes(int64_t count) {
  return human_bytes(static_cast<double>(count));
}

std::vector<std::string> cells(const PlanRow& row) {
  return {fmt::format("{}", row.accelerators),
          human_bytes(row.sent_bytes),
          fmt::format("{:.1f}", row.hidden_gbit_a_second),
          fmt::format("{:.0f} %", 100 * row.visible_at_10_gbit),
          fmt::format("{:.0f} s/s", row.audio_a_second),
          fmt::format("{:.1f} MB/s", row.read_mb_a_second),
          human_bytes(row.memory_bytes),
          human_bytes(row.sharded_memory_bytes)};
}

const std::vector<std::string> kRowTitles = {
    "ranks",      "sent by each", "Gbit/s to hide it", "lost at 10 Gbit/s",
    "sound read", "from disk",    "memory of a rank",  "sharded"};

void print_one(const PlanSizes& sizes, const PlanAssumptions& assumptions) {
  const double disk_seconds =
      static_cast<double>(sizes.checkpoint_bytes) * 1e-6 / assumptions.disk_mb_a_second;
  const double between = static_cast<double>(sizes.save_every) * assumptions.step_seconds;
  fmt::print("{}: {} parameters in training{}\n", sizes.name,
             human_count(static_cast<double>(sizes.parameters)),
             sizes.assumed.empty() ? "" : " (assumed: " + sizes.assumed + ")");
  fmt::print("  reduced in a step   {} of gradients, {} of codebook statistics, {} collectives\n",
             bytes(sizes.gradient_bytes), bytes(sizes.codebook_bytes), sizes.collectives);
  fmt::print("  a rank in a step    {} items of {:.2f} s in {} (assumed; --step_seconds)\n",
             sizes.items_a_step, sizes.seconds_of_audio, human_seconds(assumptions.step_seconds));
  fmt::print("  a checkpoint        {}, {} at {:.0f} MB/s: {:.2f} % of the time at train.save_every {}\n\n",
             bytes(sizes.checkpoint_bytes), human_seconds(disk_seconds), assumptions.disk_mb_a_second,
             between > 0 ? 100 * disk_seconds / (between + disk_seconds) : 0.0, sizes.save_every);
  TextTable table(kRowTitles);
  for (const PlanRow& row : plan(sizes, assumptions)) table.row(cells(row));
  fmt::print("{}", table.text());
}

// What a recipe file trains: the longest name that its own begins with (text_to_semantic_tiny), else its
// folder's.
std::string trained_by(const fs::path& file) {
  std::string found = file.parent_path().filename().string();
  size_t longest = 0;
  for (const std::string& name : recipe_names()) {
    std::string spelled = name;
    std::replace(spelled.begin(), spelled.end(), '-', '_');
    if (!file.stem().string().starts_with(spelled) || spelled.size() <= longest) continue;
    longest = spelled.size();
    found = name;
  }
  return found;
}

// Every recipe file of a folder and those below it.
std::vector<fs::path> recipe_files(const std::string& folder) {
  require(fs::is_directory(folder), "[recipes] expected a folder, got {}", folder);
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file() && entry.path().extension() == ".toml" &&
        !is_expectation_file(entry.path().string()))
      files.push_back(entry.path());
  require(!files.empty(), "[recipes] {} has no .toml file", folder);
  std::sort(files.begin(), files.end());
  return files;
}

void print_all(const std::string& folder, const PlanAssumptions& assumptions) {
  TextTable about(
      {"recipe", "parameters", "gradients", "codebooks", "collectives", "checkpoint", "items of a rank"});
  std::vector<std::string> titles{"recipe"};
  titles.insert(titles.end(), kRowTitles.begin(), kRowTitles.end());
  TextTable table(titles);
  for (const fs::path& file : recipe_files(folder)) {
    const auto recipe = make_recipe(trained_by(file));
    Schema schema = recipe->schema();
    schema.apply_file(file.string());
    schema.check();
    const PlanSizes sizes = sizes_of(*recipe);
    const std::string name = fs::relative(file, folder).replace_extension().string();
    about.row({name, human_count(static_cast<double>(sizes.parameters)), bytes(sizes.gradient_bytes),
               sizes.codebook_bytes > 0 ? bytes(sizes.codebook_bytes) : "-",
               fmt::format("{}", sizes.collectives), bytes(sizes.checkpoint_bytes),
               fmt::format("{} x {:.2f} s", sizes.items_a_step, sizes.seconds_of_audio)});
    for (const PlanRow& row : plan(sizes, assumptions)) {
      std::vector<std::string> line{name};
      for (std::string& cell : cells(row)) line.push_back(std::move(cell));
      table.row(std::move(line));
    }
  }
  fmt::print("{}\n{}", about.text(), table.text());
}

}  // namespace

int plan_command(const std::vector<std::string>& args) {
  const std::string what = args.empty() || args.front().starts_with("-") ? "soundstream" : args.front();
  const auto recipe = make_recipe(what);
  Schema schema = recipe->schema();
  PlanAssumptions assumptions;
  std::string word = what, recipes;
  bool wanted = false;
  Arguments arguments("bench", "plans training on many accelerators, from the model's own sizes");
  arguments.optional_word("what", word, "what to plan for").one_of(recipe_names());
  arguments.option("plan", wanted, "plan instead of timing");
  arguments.option("recipes", recipes, "a folder of recipe files: plan for each of them");
  arguments.option("accelerators", assumptions.accelerators, "how many, one row each").at_least(1);
  arguments.option("step_seconds", assumptions.step_seconds, "an accelerator's own time for a step")
      .at_least(1e-6);
  arguments.option("disk_mb", assumptions.disk_mb_a_second, "MB a second that a checkpoint is written with")
      .at_least(1);
  arguments.settings(schema);
  arguments.example("bench soundstream --plan --config recipes/soundstream/default.toml --step_seconds 0.2");
  arguments.example("bench coarse --plan --config recipes/audiolm/coarse_paper.toml --step_seconds 1.3");
  arguments.example("bench --plan --recipes recipes");
  if (!arguments.parse(args)) return 0;
  schema.check();
  if (recipes.empty())
    print_one(sizes_of(*recipe), assumptions);
  else
    print_all(recipes, assumptions);
  fmt::print("\ndocs/scale.md says what to do about each limit.\n");
  return 0;
}

}  // namespace melete

#include "cli/train_command.h"

#include <fmt/format.h>
#include <torch/utils.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <optional>

#include "cli/arguments.h"
#include "cli/kmeans_command.h"
#include "cli/terminal.h"
#include "cli/training_display.h"
#include "core/base/error.h"
#include "core/base/random.h"
#include "core/engine.h"
#include "data/loader.h"
#include "run/metrics.h"
#include "run/run_folder.h"
#include "tasks/recipe.h"
#include "train/trainer.h"

namespace melete {

namespace {

constexpr size_t kSkippedNamed = 10;  // of a folder with many, the rest is only counted

std::atomic<bool> stop_wanted{false};

// The first Ctrl-C asks the run to finish its step and save; the second one ends the program at once.
void ask_to_stop(int signal) {
  stop_wanted = true;
  std::signal(signal, SIG_DFL);
}

struct Data {
  std::shared_ptr<AudioDataset> train, valid;
  std::vector<std::string> description;
};

std::string describe_entries(const std::string& role, const std::vector<ManifestEntry>& entries) {
  double seconds = 0;
  for (const ManifestEntry& entry : entries) seconds += entry.duration_seconds;
  return fmt::format("{}: {} files, {}", role, entries.size(), human_seconds(seconds));
}

// The recordings of a folder or manifest; those of a folder that cannot be used are named and counted.
std::vector<ManifestEntry> find_recordings(const std::string& from, Reporter& reporter) {
  std::vector<SkippedFile> skipped;
  auto entries = load_entries(from, &skipped);
  for (size_t i = 0; i < std::min(skipped.size(), kSkippedNamed); ++i)
    reporter.warning(fmt::format("skipped {}: {}", skipped[i].path, skipped[i].reason));
  if (!skipped.empty())
    reporter.warning(
        fmt::format("{} of {} recordings in {} cannot be used; `melete data check {}` lists them",
                    skipped.size(), skipped.size() + entries.size(), from, from));
  return entries;
}

Data load_data(const Recipe& recipe, Reporter& reporter) {
  const auto on_failure = [&reporter](const std::string& path, const std::string& message) {
    reporter.warning(fmt::format("skipped {}: {}", path, message));
  };
  auto entries = find_recordings(recipe.data_from, reporter);
  Split parts;
  if (!recipe.valid_from.empty()) {
    parts.train = std::move(entries);
    parts.valid = find_recordings(recipe.valid_from, reporter);
  } else {
    parts = split(entries, recipe.data.valid_fraction, static_cast<uint64_t>(recipe.data.split_seed));
  }
  Data data;
  data.description = {describe_entries("training", parts.train), describe_entries("validation", parts.valid)};
  data.train = std::make_shared<AudioDataset>(std::move(parts.train), recipe.data, on_failure);
  if (!parts.valid.empty())
    data.valid = std::make_shared<AudioDataset>(std::move(parts.valid), recipe.data, on_failure);
  return data;
}

// On resume the settings start from what the run was made with; recipe files and flags go on top.
void read_settings_of_run(const std::string& folder, const std::string& what, Schema& schema) {
  const auto found = latest_usable(folder, [](const std::string&) {});
  require(found.has_value(), "[train] {} has no checkpoint to resume from; start it without --resume",
          folder);
  const std::string task = found->checkpoint.meta.value("task", "");
  require(task == what, "[train] {} is a run of `{}`, not of `{}`", folder, task, what);
  schema.apply(found->checkpoint.meta.at("config"));
}

}  // namespace

int train_command(const std::vector<std::string>& args) {
  // Not trained by gradients: it has settings of its own.
  if (!args.empty() && args.front() == "kmeans") return kmeans_command({args.begin() + 1, args.end()});
  // The first word says whose settings the rest of the line may hold.
  const std::string what = args.empty() || args.front().starts_with("-") ? "soundstream" : args.front();
  auto recipe = make_recipe(what);
  Schema schema = recipe->schema();

  std::string word, out;
  bool resume = false, fresh = false;
  Arguments arguments("train", "trains a model on your recordings");
  arguments.word("what", word, "what to train").one_of(recipe_names());
  arguments.option("out", out, "folder of the run; runs/<what> when not given");
  arguments.option("resume", resume, "go on from the newest checkpoint of that folder");
  arguments.option("fresh", fresh, "move an old run in that folder aside and start anew");
  arguments.alias("o", "out");
  arguments.alias("data", "data_from");
  arguments.alias("valid-data", "valid_from");
  arguments.alias("steps", "train.steps");
  arguments.alias("precision", "train.precision");
  arguments.settings(schema);
  arguments.example(
      "train soundstream --config recipes/tiny/soundstream.toml --data my-recordings --out runs/codec");
  arguments.example("train soundstream --out runs/codec --resume --steps 20000");
  if (!arguments.parse(args)) return 0;
  if (resume && fresh) throw UsageError("--resume and --fresh exclude each other");
  if (out.empty()) out = "runs/" + what;

  if (resume) {
    read_settings_of_run(out, what, schema);
    arguments.apply_settings();
  }
  if (recipe->data_from.empty())
    throw UsageError("no recordings to train on; give --data FOLDER_OR_MANIFEST");
  schema.check();
  recipe->settle();
  set_threads(static_cast<int>(recipe->threads));

  TrainingDisplay display;
  Reporters reporters;
  reporters.add(display);
  // Data first: a wrong path must not leave a run folder behind.
  Data data = load_data(*recipe, reporters);
  RunFolder folder(out, resume ? StartMode::resume : fresh ? StartMode::fresh : StartMode::new_run);
  if (!folder.moved_aside().empty()) reporters.note("the old run is now in " + folder.moved_aside());

  const auto seed = static_cast<uint64_t>(recipe->train.seed);
  torch::manual_seed(random_key(seed, "weights"));
  const std::unique_ptr<Task> task = recipe->make_task();
  BatchLoader training(data.train, recipe->batch_size, seed);
  std::optional<BatchLoader> validation;
  if (data.valid) validation.emplace(data.valid, recipe->batch_size, seed);
  folder.write_config(schema.json());

  TrainerParts parts{*task, training};
  parts.validation = validation ? &*validation : nullptr;
  parts.folder = &folder;
  parts.reporter = &reporters;
  parts.config = schema.json();
  parts.about.settings_table = schema.table();
  parts.about.data = data.description;
  parts.about.threads = thread_count();
  Trainer trainer(std::move(parts), recipe->train);
  if (resume) trainer.resume();

  // The files are opened after resume() has cut rows of lost steps.
  JsonlReporter jsonl(folder.metrics_path());
  TensorBoardReporter tensorboard(folder.path());
  reporters.add(jsonl);
  reporters.add(tensorboard);

  stop_wanted = false;
  std::signal(SIGINT, ask_to_stop);
  std::signal(SIGTERM, ask_to_stop);
  const RunResult result = trainer.run(stop_wanted);
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
  switch (result.outcome) {
    case Outcome::finished:
      return 0;
    case Outcome::stopped:
      return 130;
    case Outcome::failed:
      break;
  }
  throw Error(result.reason);
}

}  // namespace melete

#include "cli/train_command.h"

#include <fmt/format.h>
#include <torch/utils.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <optional>
#include <thread>

#include "cli/arguments.h"
#include "cli/kmeans_command.h"
#include "cli/terminal.h"
#include "cli/training_display.h"
#include "core/base/error.h"
#include "core/base/random.h"
#include "core/engine.h"
#include "data/loader.h"
#include "dist/group.h"
#include "dist/launcher.h"
#include "run/metrics.h"
#include "run/run_folder.h"
#include "tasks/recipe.h"
#include "tasks/token_shards.h"
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

// The words for one of the processes that --procs starts: all but --procs itself.
std::vector<std::string> words_of_rank(const std::vector<std::string>& args) {
  std::vector<std::string> words{"train"};
  for (size_t i = 0; i < args.size(); ++i) {
    if (args[i] == "--procs") {
      ++i;
      continue;
    }
    if (!args[i].starts_with("--procs=")) words.push_back(args[i]);
  }
  return words;
}

int launch_ranks(int64_t processes, const std::vector<std::string>& args, const DistConfig& config) {
  LaunchOptions options;
  options.processes = processes;
  options.words = words_of_rank(args);
  options.grace_seconds = std::min(config.timeout_seconds, 30.0) + 4 * config.heartbeat_seconds + 2;
  options.on_line = [](int64_t rank, const std::string& line) {
    fmt::print(stderr, "[rank {}] {}\n", rank, line);
    std::fflush(stderr);
  };
  const LaunchResult result = launch(options);
  if (result.code == 0 || result.code == 130) return result.code;
  fail("[procs] {}; all others have ended", result.reason);
}

// Every rank must train on the same recordings, whatever machine it is on.
void check_same_data(Group& group, const std::string& role, const std::vector<ManifestEntry>& entries) {
  std::vector<std::string> names;
  for (const ManifestEntry& entry : entries) names.push_back(entry.path);
  std::sort(names.begin(), names.end());
  uint64_t key = 0;
  for (const std::string& name : names) key = random_key(key, name);
  group.require_same(role + " data", fmt::format("{} files, list {:016x}", entries.size(), key));
}

// All cores of this machine, shared out over its ranks unless each is bound to its own already.
int threads_of_rank(int64_t wanted, const Place& place) {
  if (wanted > 0 || place.alone()) return static_cast<int>(wanted);
  const int available = available_threads(), all = static_cast<int>(std::thread::hardware_concurrency());
  return available < all ? available : std::max(1, available / static_cast<int>(place.local_size));
}

Data load_data(const Recipe& recipe, Reporter& reporter, Group& group) {
  const auto on_failure = [&reporter](const std::string& path, const std::string& message) {
    reporter.warning(fmt::format("skipped {}: {}", path, message));
  };
  if (is_token_folder(recipe.data_from)) return {};  // the recipe opens it
  auto entries = find_recordings(recipe.data_from, reporter);
  Split parts;
  if (!recipe.valid_from.empty()) {
    parts.train = std::move(entries);
    parts.valid = find_recordings(recipe.valid_from, reporter);
  } else {
    parts = split(entries, recipe.data.valid_fraction, static_cast<uint64_t>(recipe.data.split_seed));
  }
  check_same_data(group, "training", parts.train);
  check_same_data(group, "validation", parts.valid);
  Data data;
  data.description = {describe_entries("training", parts.train), describe_entries("validation", parts.valid)};
  data.train = std::make_shared<AudioDataset>(std::move(parts.train), recipe.data, on_failure);
  if (!parts.valid.empty())
    data.valid = std::make_shared<AudioDataset>(std::move(parts.valid), recipe.data, on_failure);
  return data;
}

// Batches for the loop, and what they are made from.
struct Sources {
  std::unique_ptr<BatchSource> training_audio, validation_audio;  // outlive the tokens made of them
  std::unique_ptr<BatchSource> training, validation;
};

Sources open_sources(Recipe& recipe, Data& data, uint64_t seed, const Group& group) {
  const auto rank = static_cast<int>(group.rank()), ranks = static_cast<int>(group.size());
  Sources sources;
  if (auto tokens = recipe.token_sources(seed, rank, ranks)) {
    sources.training = std::move(tokens->training);
    sources.validation = std::move(tokens->validation);
    data.description = tokens->description;
    return sources;
  }
  sources.training = std::make_unique<BatchLoader>(data.train, recipe.batch_size, seed, rank, ranks,
                                                   recipe.train.dist.split_batches);
  if (data.valid) sources.validation = std::make_unique<BatchLoader>(data.valid, recipe.batch_size, seed);
  if (auto tokens = recipe.tokens(*sources.training)) {
    sources.training_audio = std::exchange(sources.training, std::move(tokens));
    if (sources.validation)
      sources.validation_audio = std::exchange(sources.validation, recipe.tokens(*sources.validation));
  }
  return sources;
}

// On resume the settings start from what the run was made with; recipe files and flags go on top. Returns the
// file that the run keeps.
std::string read_settings_of_run(const std::string& folder, const std::string& what, Recipe& recipe,
                                 Schema& schema) {
  const auto found = latest_usable(folder, [](const std::string&) {});
  require(found.has_value(), "[train] {} has no checkpoint to resume from; start it without --resume",
          folder);
  const std::string task = found->checkpoint.meta.value("task", "");
  require(task == what, "[train] {} is a run of `{}`, not of `{}`", folder, task, what);
  schema.apply(found->checkpoint.meta.at("config"));
  return recipe.kept_file(found->checkpoint.tensors, found->path);
}

struct Words {
  std::string what, out;
  bool resume, fresh, auto_resume;
};

// What one rank does; alone, the only one.
int train_in_group(Group& group, Recipe& recipe, Schema& schema, Arguments& arguments, Words words) {
  // The main rank looks into the run folder, and all use its settings; another machine may not see the
  // folder.
  std::string kept_file;
  if (group.main()) {
    if (words.auto_resume && !words.resume && !words.fresh) {
      words.resume = latest_usable(words.out, [](const std::string&) {}).has_value();
      words.fresh = !words.resume && has_run(words.out);  // it died before its first checkpoint
    }
    if (words.resume) {
      kept_file = read_settings_of_run(words.out, words.what, recipe, schema);
      arguments.apply_settings();
    }
    if (recipe.data_from.empty())
      throw UsageError("no recordings to train on; give --data FOLDER_OR_MANIFEST");
  }
  const auto agreed = nlohmann::ordered_json::parse(
      group.from_main(nlohmann::ordered_json{{"resume", words.resume}, {"settings", schema.json()}}.dump()));
  words.resume = agreed.at("resume");
  if (!group.main()) schema.apply(agreed.at("settings"));
  if (words.resume) recipe.take_kept_file(group.from_main(kept_file));
  schema.check();
  recipe.settle();
  if (recipe.train.device == "cuda" && !group.alone())
    recipe.train.device = fmt::format("cuda:{}", group.place().local_rank);
  set_threads(threads_of_rank(recipe.threads, group.place()));

  // The main rank speaks for all.
  std::optional<TrainingDisplay> display;
  Reporters reporters;
  if (group.main()) reporters.add(display.emplace());
  // Data first: a wrong path must not leave a run folder behind.
  Data data = load_data(recipe, reporters, group);
  std::optional<RunFolder> folder;
  if (group.main()) {
    folder.emplace(words.out, words.resume  ? StartMode::resume
                              : words.fresh ? StartMode::fresh
                                            : StartMode::new_run);
    if (!folder->moved_aside().empty()) reporters.note("the old run is now in " + folder->moved_aside());
  }

  const auto seed = static_cast<uint64_t>(recipe.train.seed);
  torch::manual_seed(random_key(seed, "weights"));
  const std::unique_ptr<Task> task = recipe.make_task();
  const Sources sources = open_sources(recipe, data, seed, group);
  if (folder) folder->write_config(schema.json());

  TrainerParts parts{*task, *sources.training};
  parts.validation = sources.validation.get();
  parts.folder = folder ? &*folder : nullptr;
  parts.group = &group;
  parts.reporter = &reporters;
  parts.config = schema.json();
  parts.about.settings_table = schema.table();
  parts.about.data = data.description;
  parts.about.threads = thread_count();
  if (!group.alone())
    parts.about.data.push_back(fmt::format("processes: {} ({}), batch {} in all", group.size(),
                                           group.place().source, sources.training->items_per_batch()));
  Trainer trainer(std::move(parts), recipe.train);
  if (words.resume) trainer.resume();

  // The files are opened after resume() has cut rows of lost steps.
  std::optional<JsonlReporter> jsonl;
  std::optional<TensorBoardReporter> tensorboard;
  if (folder) {
    reporters.add(jsonl.emplace(folder->metrics_path()));
    reporters.add(tensorboard.emplace(folder->path()));
  }

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

}  // namespace

int train_command(const std::vector<std::string>& args) {
  // Not trained by gradients: it has settings of its own.
  if (!args.empty() && args.front() == "kmeans") return kmeans_command({args.begin() + 1, args.end()});
  // The first word says whose settings the rest of the line may hold.
  const std::string what = args.empty() || args.front().starts_with("-") ? "soundstream" : args.front();
  auto recipe = make_recipe(what);
  Schema schema = recipe->schema();

  std::string word, out;
  bool resume = false, fresh = false, auto_resume = false;
  int64_t processes = 0;
  Arguments arguments("train", "trains a model on your recordings");
  arguments.word("what", word, "what to train").one_of(recipe_names());
  arguments.option("out", out, "folder of the run; runs/<what> when not given");
  arguments.option("resume", resume, "go on from the newest checkpoint of that folder");
  arguments.option("fresh", fresh, "move an old run in that folder aside and start anew");
  arguments.option("auto-resume", auto_resume,
                   "go on where that folder has a checkpoint, else start: for jobs that are started again");
  arguments.option("procs", processes, "train in this many processes on this machine; 0: in this one")
      .at_least(0)
      .at_most(4096);
  arguments.alias("o", "out");
  arguments.alias("data", "data_from");
  arguments.alias("valid-data", "valid_from");
  arguments.alias("steps", "train.steps");
  arguments.alias("precision", "train.precision");
  arguments.settings(schema);
  arguments.example(
      "train soundstream --config recipes/tiny/soundstream.toml --data my-recordings --out runs/codec");
  arguments.example("train soundstream --out runs/codec --resume --steps 20000");
  arguments.example("train soundstream --config recipes/soundstream.toml --data my-recordings --procs 2");
  if (!arguments.parse(args)) return 0;
  if (resume && fresh) throw UsageError("--resume and --fresh exclude each other");
  if (out.empty()) out = "runs/" + what;

  const Place place = read_place();
  if (processes > 0) {
    if (!place.alone())
      throw UsageError(fmt::format("--procs inside a group of {} processes that {} has started; leave it out",
                                   place.size, place.source));
    return launch_ranks(processes, args, recipe->train.dist);
  }
  // A group that its launcher has started anew goes on from where it was.
  if (place.restarts > 0) {
    auto_resume = true;
    resume = fresh = false;
  }

  Group group(place, recipe->train.dist);
  try {
    const int code =
        train_in_group(group, *recipe, schema, arguments, {what, out, resume, fresh, auto_resume});
    group.finish();
    return code;
  } catch (const std::exception& error) {
    group.say_failure(error.what());
    throw;
  }
}

}  // namespace melete

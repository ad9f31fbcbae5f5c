#include "cli/train_command.h"

#include <fmt/ranges.h>
#include <torch/utils.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <thread>

#include "cli/arguments.h"
#include "cli/dry_run.h"
#include "cli/kmeans_command.h"
#include "cli/terminal.h"
#include "cli/training_display.h"
#include "core/base/error.h"
#include "core/base/random.h"
#include "core/base/shell_line.h"
#include "core/device.h"
#include "core/engine.h"
#include "dist/group.h"
#include "dist/launcher.h"
#include "io/base/atomic_file.h"
#include "measure/cost.h"
#include "run/expectation.h"
#include "run/metrics.h"
#include "run/run_folder.h"
#include "systems/system.h"
#include "train/one_batch.h"
#include "train/phase_config.h"
#include "train/start_from.h"
#include "train/trainer.h"

namespace melete {

namespace {

std::atomic<bool> stop_wanted{false};

// The first Ctrl-C asks the run to finish its step and save; the second one ends the program at once.
void ask_to_stop(int signal) {
  stop_wanted = true;
  std::signal(signal, SIG_DFL);
}

// For its lifetime Ctrl-C and SIGTERM ask to stop.
struct StopSignals {
  StopSignals() {
    std::signal(SIGINT, ask_to_stop);
    std::signal(SIGTERM, ask_to_stop);
  }
  ~StopSignals() {
    std::signal(SIGINT, SIG_DFL);
    std::signal(SIGTERM, SIG_DFL);
  }
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
};

int launch_ranks(int64_t processes, const std::vector<std::string>& args, const DistConfig& config) {
  LaunchOptions options;
  options.processes = processes;
  options.words = without_flags(args, {"procs"});
  options.words.insert(options.words.begin(), "train");
  options.grace_seconds = std::min(config.timeout_seconds, 30.0) + 4 * config.heartbeat_seconds + 2;
  options.on_line = [](int64_t rank, const std::string& line) {
    fmt::print(stderr, "[rank {}] {}\n", rank, line);
    std::fflush(stderr);
  };
  const LaunchResult result = launch(options);
  if (result.code == 0 || result.code == 130) return result.code;
  fail("[procs] {}; all others have ended", result.reason);
}

// All cores of this machine, shared out over its ranks unless each is bound to its own already.
int threads_of_rank(int64_t wanted, const Place& place) {
  if (wanted > 0 || place.alone()) return static_cast<int>(wanted);
  const int available = available_threads(), all = static_cast<int>(std::thread::hardware_concurrency());
  return available < all ? available : std::max(1, available / static_cast<int>(place.local_size));
}

// Files whose bytes a run keeps, by the setting that names them.
using KeptFiles = std::map<std::string, std::string>;

KeptFiles kept_files(const Schema& schema, const TensorMap& tensors) {
  KeptFiles files;
  for (const Option& option : schema.options()) {
    const auto found = tensors.find(option.kept_name());
    if (option.kept_name().empty() || found == tensors.end()) continue;
    const at::Tensor bytes = found->second.contiguous();
    files[option.name()].assign(static_cast<const char*>(bytes.data_ptr()), bytes.nbytes());
  }
  return files;
}

// The main rank's; used where a file is no longer there.
void take_kept_files(Schema& schema, Group& group, const KeptFiles& files) {
  for (const Option& option : schema.options()) {
    if (option.kept_name().empty()) continue;
    const auto found = files.find(option.name());
    const std::string bytes = group.from_main(found == files.end() ? "" : found->second);
    const std::string path = option.json().get<std::string>();
    if (!bytes.empty() && !std::filesystem::exists(path)) *option.kept_bytes() = bytes;
  }
}

// On resume the settings start from what the run was made with; recipe files and flags go on top. Returns the
// files that the run keeps.
KeptFiles read_settings_of_run(const std::string& folder, const std::string& what, Schema& schema) {
  const auto found = latest_usable(folder, [](const std::string&) {});
  require(found.has_value(), "[train] {} has no checkpoint to resume from; start it without --resume",
          folder);
  const std::string task = found->checkpoint.meta.value("task", "");
  require(task == what, "[train] {} is a run of `{}`, not of `{}`", folder, task, what);
  schema.apply(found->checkpoint.meta.at("config"));
  return kept_files(schema, found->checkpoint.tensors);
}

// "musiclm-semantic has it": which others have a setting that few have.
std::string other_recipes_with(const std::string& setting) {
  constexpr size_t kFew = 3;
  std::vector<std::string> having;
  for (const std::string& name : recipe_names())
    if (make_recipe(name)->schema().find(setting) != nullptr) having.push_back(name);
  return having.empty() || having.size() > kFew
             ? ""
             : fmt::format("It is a setting of `train {}`", fmt::join(having, "`, `train "));
}

struct TrainFlags {
  std::string line;  // as it was typed
  std::string what, out;
  bool resume, fresh, auto_resume, dry_run, one_batch;
  StartFrom from;
};

// Settings that change neither what is learned nor from what; and the steps, which the table itself knows.
bool leaves_figures_alone(const Option& option) {
  static const std::vector<std::string> kNames = {
      "threads",         "train.steps",      "train.seed",           "train.device",
      "train.log_every", "train.columns",    "train.sample_every",   "train.save_every",
      "train.keep_last", "train.keep_every", "train.validate_every", "train.validate_batches",
      "data.workers",    "data.prefetch"};
  const std::string& name = option.name();
  const bool file = name.ends_with("_from") && option.json().is_string();
  return file || name.starts_with("train.dist.") ||
         std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

// What the line has said otherwise than the recipe that was measured.
std::vector<std::string> unlike_recipe(const std::string& what, const std::string& file, const Schema& schema,
                                       const Arguments& arguments) {
  const auto plain = make_recipe(what);
  Schema as_written = plain->schema();
  as_written.apply_file(file);
  std::vector<std::string> lines;
  for (const Option& option : schema.options()) {
    if (!arguments.given(option.name()) || leaves_figures_alone(option)) continue;
    const std::string wanted = as_written.find(option.name())->text();
    if (option.text() != wanted)
      lines.push_back(fmt::format("{} {} instead of {}", option.name(), option.text(), wanted));
  }
  return lines;
}

// What the recipe gave where it was measured: from beside the last recipe file that has a table, or from the
// run that goes on. None: not measured.
std::optional<Expectation> find_expectation(const TrainFlags& words, const Recipe& recipe,
                                            const Schema& schema, const Arguments& arguments,
                                            Reporter& reporter) {
  if (words.resume) {
    const std::string path = expectation_of_run(words.out);
    if (!std::filesystem::exists(path)) return {};
    try {
      return read_expectation(path);
    } catch (const Error& error) {  // a run must not end for it
      reporter.warning(fmt::format("without expectations: {}", error.what()));
      return {};
    }
  }
  std::optional<Expectation> table;
  for (const std::string& file : arguments.recipes()) {
    const std::string path = expectation_beside(file);
    if (!std::filesystem::exists(path)) continue;
    table = read_expectation(path);
    require(table->task == words.what, "[{}] expected a table of {}, got one of {}", path, words.what,
            table->task);
    table->unlike = unlike_recipe(words.what, file, schema, arguments);
  }
  if (!table) return {};
  if (!words.from.path.empty())
    table->unlike.push_back("the weights of " + words.from.path + " to begin with");
  if (table->steps > 0 && table->steps != recipe.train.steps)
    table->unlike.push_back(fmt::format("train.steps {} instead of {}", recipe.train.steps, table->steps));
  return table;
}

int try_one_batch(Task& task, Feed& feed, TrainerConfig config, bool steps_given, Reporter& reporter) {
  if (!steps_given) config.steps = kOneBatchSteps;
  const OneBatchResult result = overfit_one_batch(task, *feed.training, config, reporter, stop_wanted);
  if (stop_wanted) return 130;
  if (result.verdict == OneBatchResult::nothing) throw Error("[overfit_one_batch] " + result.words);
  reporter.note(result.words);
  return 0;
}

// What one rank does; alone, the only one.
int train_in_group(Group& group, Recipe& recipe, Schema& schema, Arguments& arguments, TrainFlags words) {
  // The main rank looks into the run folder, and all use its settings; another machine may not see the
  // folder.
  KeptFiles files;
  std::optional<StartWeights> start;
  if (group.main()) {
    if (words.auto_resume && !words.resume && !words.fresh) {
      words.resume = latest_usable(words.out, [](const std::string&) {}).has_value();
      words.fresh = !words.resume && has_run(words.out);  // it died before its first checkpoint
    }
    if (words.resume) {
      files = read_settings_of_run(words.out, words.what, schema);
      arguments.apply_settings();
    } else if (!words.from.path.empty()) {
      start = open_start(words.from);
      start->apply_settings(recipe, schema);
      files = kept_files(schema, start->found.checkpoint.tensors);
      arguments.apply_settings();
    }
    if (arguments.given("train.steps")) {
      if (arguments.given("epochs")) throw UsageError("--steps and --epochs say the same; give one of them");
      recipe.epochs = 0;  // of a recipe file or of the run that goes on
    }
    if (recipe.data_from.empty()) throw UsageError("no data to train on; give --data FOLDER_OR_MANIFEST");
  }
  const auto agreed = nlohmann::ordered_json::parse(
      group.from_main(nlohmann::ordered_json{{"resume", words.resume}, {"settings", schema.json()}}.dump()));
  words.resume = agreed.at("resume");
  if (!group.main()) schema.apply(agreed.at("settings"));
  take_kept_files(schema, group, files);
  schema.check();
  // Before settings that follow from others are filled in.
  std::optional<Expectation> expectation;
  Reporters reporters;
  std::optional<TrainingDisplay> display;
  if (group.main()) {  // speaks for all
    reporters.add(display.emplace(stdout, recipe.train.columns == "all" ? Columns::all : Columns::main));
    expectation = find_expectation(words, recipe, schema, arguments, reporters);
  }
  recipe.frozen_device = device_named(recipe.train.device, group.place().local_rank);
  recipe.settle();
  set_threads(threads_of_rank(recipe.threads, group.place()));

  // Data, model and schedules first: what is wrong with them must not leave a run folder behind.
  const auto seed = static_cast<uint64_t>(recipe.train.seed);
  Feed feed = recipe.open({seed, group, reporters});
  settle_epochs(recipe, feed);
  torch::manual_seed(random_key(seed, "weights"));
  const std::unique_ptr<Task> task = recipe.make_task();
  if (start) reporters.note(start->load(task->model()));  // the main rank's weights are everyone's
  for (Phase phase : task->phases()) {
    leave_out_frozen(phase);
    Schedule(phase.schedule, phase.optimiser.learning_rate, recipe.train.steps);
  }
  if (words.dry_run) {
    const TrainingCost cost = training_cost(recipe, *task, feed);
    fmt::print("{}", dry_run_text(recipe, cost, feed, expectation));
    return 0;
  }
  stop_wanted = false;
  if (words.one_batch) {
    const StopSignals signals;
    return try_one_batch(*task, feed, recipe.train, arguments.given("train.steps"), reporters);
  }
  std::optional<RunFolder> folder;
  if (group.main()) {
    folder.emplace(words.out, words.resume  ? StartMode::resume
                              : words.fresh ? StartMode::fresh
                                            : StartMode::new_run);
    if (!folder->moved_aside().empty()) reporters.note("the old run is now in " + folder->moved_aside());
  }
  if (folder) {
    folder->write_config(schema.json());
    std::ofstream(folder->path() + "/commands.txt", std::ios::app) << words.line << '\n';
  }
  if (folder && expectation && !words.resume)
    write_file_atomically(expectation_of_run(folder->path()), expectation_text(*expectation));

  TrainerParts parts{*task, *feed.training};
  parts.validation = feed.validation.get();
  parts.folder = folder ? &*folder : nullptr;
  parts.group = &group;
  parts.reporter = &reporters;
  parts.config = schema.json();
  parts.expectation = expectation;
  parts.about.settings_table = schema.table();
  parts.about.data = feed.description;
  parts.about.threads = thread_count();
  if (!group.alone())
    parts.about.data.push_back(fmt::format("processes: {} ({}), batch {} in all", group.size(),
                                           group.place().source, feed.training->items_per_batch()));
  Trainer trainer(std::move(parts), recipe.train);
  if (words.resume) trainer.resume();

  // The files are opened after resume() has cut rows of lost steps.
  std::optional<JsonlReporter> jsonl;
  std::optional<TensorBoardReporter> tensorboard;
  if (folder) {
    reporters.add(jsonl.emplace(folder->metrics_path()));
    reporters.add(tensorboard.emplace(folder->path()));
  }

  const RunResult result = [&] {
    const StopSignals signals;
    return trainer.run(stop_wanted);
  }();
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

  std::vector<std::string> names = recipe_names();
  names.push_back("kmeans");
  std::string word, out;
  StartFrom from;
  bool resume = false, fresh = false, auto_resume = false, dry_run = false, one_batch = false;
  int64_t processes = 0;
  Arguments arguments("train", "trains a model on your recordings");
  arguments.word("what", word, "what to train; kmeans: a semantic tokenizer (help train kmeans)")
      .one_of(names);
  arguments.option("out", out, "folder of the run; runs/<what> when not given");
  arguments.option("resume", resume, "go on from the newest checkpoint of that folder");
  arguments.option("fresh", fresh, "move an old run in that folder aside and start anew");
  arguments.option("auto_resume", auto_resume,
                   "go on where that folder has a checkpoint, else start: for jobs that are started again");
  arguments.option("from", from.path, "begin with the weights of a run, a checkpoint or an exported file");
  arguments.option("from_step", from.step, "of that run: the checkpoint of this step; 0: the newest")
      .at_least(0);
  arguments.option("from_parts", from.parts, "only weights whose names begin with one of these");
  arguments.option("from_partly", from.partly, "pass over weights that only one of the two has");
  arguments.option(
      "dry_run", dry_run,
      "what it would cost here and give: memory, disk, time, passes over the data; starts nothing");
  arguments.option(
      "overfit_one_batch", one_batch,
      "a first check of data and model: learns one batch by heart, says whether it can; 200 steps "
      "unless --steps says otherwise; writes nothing");
  arguments.option("procs", processes, "train in this many processes on this machine; 0: in this one")
      .at_least(0)
      .at_most(4096);
  arguments.alias("o", "out");
  arguments.alias("data", "data_from");
  arguments.alias("valid_data", "valid_from");
  arguments.alias("steps", "train.steps");
  arguments.alias("precision", "train.precision");
  arguments.settings(schema);
  arguments.example(
      "train soundstream --config recipes/soundstream/tiny.toml --data my-recordings --out runs/codec");
  arguments.example(
      "train soundstream --config recipes/soundstream/tiny.toml --data my-recordings --dry_run");
  arguments.example("train soundstream --out runs/codec --resume --steps 20000");
  arguments.example(
      "train soundstream --config recipes/soundstream/default.toml --data my-recordings --procs 2");
  arguments.elsewhere(other_recipes_with);
  if (!arguments.parse(args)) return 0;
  if (resume && fresh) throw UsageError("--resume and --fresh exclude each other");
  if (resume && !from.path.empty())
    throw UsageError("--resume goes on with a run and --from begins a new one; give one of them");
  if ((dry_run || one_batch) && (resume || processes > 0))
    throw UsageError(
        fmt::format("--{} starts nothing that could be resumed or shared; leave --resume and --procs out",
                    dry_run ? "dry_run" : "overfit_one_batch"));
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

  std::vector<std::string> line = args;
  line.insert(line.begin(), {"melete", "train"});
  if (place.store_outside && place.run == Place().run)  // a rank that --procs has started
    line.insert(line.end(), {"--procs", std::to_string(place.size)});

  Group group(place, recipe->train.dist);
  try {
    const int code =
        train_in_group(group, *recipe, schema, arguments,
                       {shell_line(line), what, out, resume, fresh, auto_resume, dry_run, one_batch, from});
    group.finish();
    return code;
  } catch (const std::exception& error) {
    group.say_failure(error.what());
    throw;
  }
}

}  // namespace melete

#include "cli/bench_command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "cli/arguments.h"
#include "cli/plan_command.h"
#include "cli/scale_command.h"
#include "cli/terminal.h"
#include "config/nearest.h"
#include "core/base/error.h"
#include "core/engine.h"
#include "dist/group.h"
#include "dist/launcher.h"
#include "measure/bench_clock.h"
#include "measure/recipe_bench.h"
#include "systems/system.h"

namespace melete {

namespace {

// Seconds of a step in `processes` processes of `threads` threads each: the program starts itself again.
double time_processes(int64_t processes, int64_t threads, const std::vector<std::string>& args) {
  LaunchOptions options;
  options.processes = processes;
  options.words = without_flags(args, {"procs", "threads"});
  options.words.insert(options.words.begin(), "bench");
  options.words.insert(options.words.end(), {"--threads", std::to_string(threads), "--as_rank"});
  double seconds = 0;
  options.on_line = [&seconds](int64_t rank, const std::string& line) {
    if (rank == 0 && line.starts_with("seconds "))
      seconds = std::stod(line.substr(8));
    else
      fmt::print(stderr, "[rank {}] {}\n", rank, line);
  };
  const LaunchResult result = launch(options);
  require(result.code == 0 && seconds > 0, "[bench] {}", result.reason);
  return seconds;
}

int compare_processes(int64_t processes, int64_t threads, int64_t batch_size,
                      const std::vector<std::string>& args) {
  const int64_t cores = threads > 0 ? threads : available_threads();
  const int64_t each = std::max<int64_t>(1, cores / processes);
  const double one = time_processes(1, cores, args), many = time_processes(processes, each, args);
  const auto rate = [&](double seconds) {
    return fmt::format("{:.2f}", static_cast<double>(batch_size) / seconds);
  };
  TextTable table({"processes", "threads of each", "seconds of a step", "items a second"});
  table.row({"1", fmt::format("{}", cores), fmt::format("{:.4f}", one), rate(one)});
  table.row({fmt::format("{}", processes), fmt::format("{}", each), fmt::format("{:.4f}", many), rate(many)});
  fmt::print("{}\nthroughput ratio: {:.2f} ({} x {} against 1 x {}, {} items a step)\n", table.text(),
             one / many, processes, each, cores, batch_size);
  return 0;
}

// Everything that can be timed: what rooms bring, and a step of every recipe that none of them names.
std::vector<Timing> timings() {
  std::vector<Timing> all;
  for (const System& system : systems()) all.insert(all.end(), system.timings.begin(), system.timings.end());
  const auto known = [&](const std::string& name) {
    return std::any_of(all.begin(), all.end(), [&](const Timing& timing) { return timing.name == name; });
  };
  for (const std::string& name : recipe_names())
    if (!known(name))
      all.push_back({name, "a training step", [name] { return make_recipe_benchmark(make_recipe(name)); }});
  return all;
}

bool is_recipe(const std::string& name) {
  const std::vector<std::string> names = recipe_names();
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

int bench_command(const std::vector<std::string>& args) {
  // Not a matter of time: it has words of its own.
  if (!args.empty() && args.front() == "scale") return scale_command({args.begin() + 1, args.end()});
  const auto has = [&](const std::string& flag) {
    return std::any_of(args.begin(), args.end(),
                       [&](const std::string& word) { return word == flag || word.starts_with(flag + "="); });
  };
  if (has("--plan")) return plan_command(args);
  // The first word says whose settings the rest of the line may hold.
  const std::string first = args.empty() || args.front().starts_with("-") ? "soundstream" : args.front();
  std::vector<std::string> names;
  std::unique_ptr<Benchmark> benchmark;
  for (const Timing& timing : timings()) {
    names.push_back(timing.name);
    if (timing.name == first) benchmark = timing.make();
  }
  if (!benchmark)
    throw UsageError(fmt::format("nothing to time is called `{}`; did you mean `{}`? there is: {}", first,
                                 nearest_word(first, names), fmt::join(names, ", ")));
  // Several processes train a recipe; its settings are the recipe's.
  const bool in_processes = has("--procs") || has("--as_rank");
  if (in_processes && !is_recipe(first))
    throw UsageError("--procs compares training steps, and `" + first + "` is none");
  const std::unique_ptr<Recipe> recipe = in_processes ? make_recipe(first) : nullptr;
  Schema schema;
  if (recipe)
    schema = recipe->schema();
  else
    benchmark->describe(schema);

  std::string what, precision = "fp32";
  int64_t threads = 0, repeats = 5, processes = 0;
  bool json = false, cpu = false, plan_wanted = false, as_rank = false;
  Arguments arguments("bench", "times training and inference on this machine");
  arguments.optional_word("what", what, "what to time").one_of(names);
  // A recipe has a setting of that name, too; this one goes before it.
  arguments.option("threads", threads, "0: all cores").at_least(0);
  arguments.option("precision", precision, "arithmetic, or of the weights where tokens are generated")
      .one_of(benchmark->precisions());
  arguments.option("repeats", repeats, "runs of which the median counts").at_least(1);
  arguments.option("json", json, "print one JSON object instead of a table");
  arguments.option("cpu", cpu, "seconds of CPU time of all threads, for a machine that others use as well");
  arguments.option("procs", processes, "compare this many processes with one that has all threads")
      .at_least(0);
  arguments.option("plan", plan_wanted, "no timing: what training on many accelerators would need");
  arguments.option("as_rank", as_rank, "be one of the processes that --procs starts");
  arguments.settings(schema);
  arguments.example("bench soundstream --threads 1");
  arguments.example("bench soundstream --procs 2");
  arguments.example("bench soundstream --plan --config recipes/soundstream/default.toml");
  arguments.example("bench --plan --recipes recipes");
  arguments.example("bench generate --threads 1");
  arguments.example("bench scale --help");
  if (!arguments.parse(args)) return 0;
  schema.check();
  if (as_rank) {
    set_threads(static_cast<int>(threads));
    Group group(read_place(), {});
    const double seconds = ranks_step_seconds(group, *recipe, precision, static_cast<int>(repeats));
    if (group.main()) fmt::print(stderr, "seconds {}\n", seconds);
    group.finish();
    return 0;
  }
  if (processes > 0) return compare_processes(processes, threads, recipe->batch_size, args);

  if (cpu) set_bench_clock(BenchClock::cpu);
  set_threads(static_cast<int>(threads));
  Bench bench(precision, static_cast<int>(repeats));
  if (!json) {
    const MachinePeak& machine = bench.report().machine;
    fmt::print("{}\n{} thread{}: sgemm {:.0f} GFLOP/s, bf16 {:.0f} GFLOP/s, memory read at {:.0f} GB/s\n",
               engine_info().cpu, machine.threads, machine.threads == 1 ? "" : "s", machine.sgemm_gflops,
               machine.bf16_gflops, machine.read_gb_per_second);
    bench.on_row = [](const BenchRow& row) {
      fmt::print(stderr, "  {} {}\n", row.name, human_seconds(row.seconds));
    };
  }
  benchmark->run(bench, precision);
  if (json) {
    fmt::print("{}\n", bench.report().json().dump(2));
    return 0;
  }
  TextTable table({"what", "precision", cpu ? "CPU seconds" : "seconds", "% of peak", "peak memory", ""});
  for (const BenchRow& row : bench.report().rows)
    table.row({row.name,
               row.precision + (row.arithmetic == row.precision ? "" : ", computed in " + row.arithmetic),
               fmt::format("{:.4f}", row.seconds), fmt::format("{:.0f}", row.percent_of_peak),
               row.peak_memory_mb > 0 ? human_bytes(row.peak_memory_mb * 1e6) : "", row.note});
  fmt::print("\n{}", table.text());
  return 0;
}

}  // namespace melete

#include "cli/bench_command.h"

#include <fmt/format.h>

#include <algorithm>

#include "bench/ranks_bench.h"
#include "bench/soundstream_bench.h"
#include "bench/stage_bench.h"
#include "cli/arguments.h"
#include "cli/plan_command.h"
#include "cli/scale_command.h"
#include "cli/terminal.h"
#include "core/base/error.h"
#include "core/engine.h"
#include "dist/group.h"
#include "dist/launcher.h"
#include "kernels/weight_storage.h"

namespace melete {

namespace {

// Seconds of a step in `processes` processes of `threads` threads each: the program starts itself again.
double time_processes(int64_t processes, int64_t threads, std::vector<std::string> args) {
  LaunchOptions options;
  options.processes = processes;
  options.words = {"bench"};
  for (size_t i = 0; i < args.size(); ++i) {
    if (args[i] == "--procs" || args[i] == "--threads")
      ++i;
    else if (!args[i].starts_with("--procs=") && !args[i].starts_with("--threads="))
      options.words.push_back(args[i]);
  }
  options.words.insert(options.words.end(), {"--threads", std::to_string(threads), "--as-rank"});
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

int compare_processes(int64_t processes, int64_t threads, const SoundStreamBenchConfig& config,
                      const std::vector<std::string>& args) {
  const int64_t cores = threads > 0 ? threads : available_threads();
  const int64_t each = std::max<int64_t>(1, cores / processes);
  const double one = time_processes(1, cores, args), many = time_processes(processes, each, args);
  const auto rate = [&](double seconds) {
    return fmt::format("{:.2f}", static_cast<double>(config.batch_size) / seconds);
  };
  TextTable table({"processes", "threads of each", "seconds of a step", "items a second"});
  table.row({"1", fmt::format("{}", cores), fmt::format("{:.4f}", one), rate(one)});
  table.row({fmt::format("{}", processes), fmt::format("{}", each), fmt::format("{:.4f}", many), rate(many)});
  fmt::print("{}\nthroughput ratio: {:.2f} ({} x {} against 1 x {}, {} items a step)\n", table.text(),
             one / many, processes, each, cores, config.batch_size);
  return 0;
}

}  // namespace

int bench_command(const std::vector<std::string>& args) {
  // Not a matter of time: it has words of its own.
  if (!args.empty() && args.front() == "scale") return scale_command({args.begin() + 1, args.end()});
  if (std::find(args.begin(), args.end(), "--plan") != args.end()) return plan_command(args);
  // The first word says whose settings the rest of the line may hold.
  const bool of_codec = args.empty() || args.front().starts_with("-") || args.front() == "soundstream";
  SoundStreamBenchConfig config;
  StageBenchConfig stages;
  Schema schema = of_codec ? schema_of(config) : schema_of(stages);
  std::string what, precision = "fp32";
  int64_t threads = 0, repeats = 5;
  int64_t processes = 0;
  bool json = false, plan_wanted = false, as_rank = false;
  Arguments arguments("bench", "times training and inference on this machine");
  arguments.word("what", what, "what to time")
      .one_of({"soundstream", "semantic", "coarse", "fine", "generate"});
  arguments.option("threads", threads, "0: all cores").at_least(0);
  const bool of_generation = !args.empty() && args.front() == "generate";
  arguments
      .option("precision", precision,
              of_generation ? "of the weights" : "arithmetic of forward and backward; generate: also int8")
      .one_of(of_generation ? weight_precisions() : std::vector<std::string>{"fp32", "bf16"});
  arguments.option("repeats", repeats, "runs of which the median counts").at_least(1);
  arguments.option("json", json, "print one JSON object instead of a table");
  arguments.option("procs", processes, "compare this many processes with one that has all threads")
      .at_least(0);
  arguments.option("plan", plan_wanted, "no timing: what training on many accelerators would need");
  arguments.option("as-rank", as_rank, "be one of the processes that --procs starts");
  arguments.settings(schema);
  arguments.example("bench soundstream --threads 1");
  arguments.example("bench soundstream --procs 2");
  arguments.example("bench soundstream --plan --config recipes/soundstream.toml");
  arguments.example("bench --plan --recipes recipes");
  arguments.example("bench generate --threads 1");
  arguments.example("bench scale --help");
  if (!arguments.parse(args)) return 0;
  schema.check();
  if ((as_rank || processes > 0) && !of_codec) throw UsageError("--procs compares `bench soundstream` only");
  if (as_rank) {
    set_threads(static_cast<int>(threads));
    Group group(read_place(), {});
    const double seconds = ranks_step_seconds(group, config, precision, static_cast<int>(repeats));
    if (group.main()) fmt::print(stderr, "seconds {}\n", seconds);
    group.finish();
    return 0;
  }
  if (processes > 0) return compare_processes(processes, threads, config, args);

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
  if (of_codec) {
    bench_soundstream(bench, config, precision);
  } else {
    bench_stage(bench, what, stages, precision);
  }
  if (json) {
    fmt::print("{}\n", bench.report().json().dump(2));
    return 0;
  }
  TextTable table({"what", "precision", "seconds", "% of peak", "peak memory", ""});
  for (const BenchRow& row : bench.report().rows)
    table.row({row.name,
               row.precision + (row.arithmetic == row.precision ? "" : ", computed in " + row.arithmetic),
               fmt::format("{:.4f}", row.seconds), fmt::format("{:.0f}", row.percent_of_peak),
               row.peak_memory_mb > 0 ? human_bytes(row.peak_memory_mb * 1e6) : "", row.note});
  fmt::print("\n{}", table.text());
  return 0;
}

}  // namespace melete

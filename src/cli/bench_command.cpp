#include "cli/bench_command.h"

#include <fmt/format.h>

#include "bench/soundstream_bench.h"
#include "cli/arguments.h"
#include "cli/terminal.h"
#include "core/engine.h"

namespace melete {

int bench_command(const std::vector<std::string>& args) {
  SoundStreamBenchConfig config;
  Schema schema = schema_of(config);
  std::string what, precision = "fp32";
  int64_t threads = 0, repeats = 5;
  bool json = false;
  Arguments arguments("bench", "times training and inference on this machine");
  arguments.word("what", what, "what to time").one_of({"soundstream"});
  arguments.option("threads", threads, "0: all cores").at_least(0);
  arguments.option("precision", precision, "arithmetic of forward and backward").one_of({"fp32", "bf16"});
  arguments.option("repeats", repeats, "runs of which the median counts").at_least(1);
  arguments.option("json", json, "print one JSON object instead of a table");
  arguments.settings(schema);
  arguments.example("bench soundstream --threads 1");
  if (!arguments.parse(args)) return 0;
  schema.check();

  set_threads(static_cast<int>(threads));
  Bench bench(precision, static_cast<int>(repeats));
  if (!json) {
    const MachinePeak& machine = bench.report().machine;
    fmt::print("{}\n{} thread{}: sgemm {:.0f} GFLOP/s, bf16 {:.0f} GFLOP/s\n", engine_info().cpu,
               machine.threads, machine.threads == 1 ? "" : "s", machine.sgemm_gflops, machine.bf16_gflops);
    bench.on_row = [](const BenchRow& row) {
      fmt::print(stderr, "  {} {}\n", row.name, human_seconds(row.seconds));
    };
  }
  bench_soundstream(bench, config, precision);
  if (json) {
    fmt::print("{}\n", bench.report().json().dump(2));
    return 0;
  }
  TextTable table({"what", "precision", "seconds", "% of peak", "peak memory", ""});
  for (const BenchRow& row : bench.report().rows)
    table.row({row.name, row.precision, fmt::format("{:.4f}", row.seconds),
               fmt::format("{:.0f}", row.percent_of_peak),
               row.peak_memory_mb > 0 ? human_bytes(row.peak_memory_mb * 1e6) : "", row.note});
  fmt::print("\n{}", table.text());
  return 0;
}

}  // namespace melete

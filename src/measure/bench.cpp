#include "measure/bench.h"

#include <c10/core/Device.h>

#include <algorithm>

#include "core/autocast.h"
#include "core/engine.h"
#include "measure/bench_clock.h"
#include "measure/flops.h"

namespace melete {

nlohmann::ordered_json BenchReport::json() const {
  nlohmann::ordered_json report;
  report["machine"] = {{"sgemm_gflops", machine.sgemm_gflops},
                       {"bf16_gflops", machine.bf16_gflops},
                       {"read_gb_per_second", machine.read_gb_per_second},
                       {"threads", machine.threads}};
  report["results"] = nlohmann::ordered_json::array();
  for (const BenchRow& row : rows) {
    report["results"].push_back({{"name", row.name},
                                 {"precision", row.precision},
                                 {"arithmetic", row.arithmetic},
                                 {"seconds", row.seconds},
                                 {"percent_of_peak", row.percent_of_peak},
                                 {"peak_memory_mb", row.peak_memory_mb}});
  }
  return report;
}

double median_seconds(int repeats, const std::function<void()>& run,
                      const std::function<void()>& before_each) {
  std::vector<double> seconds;
  for (int i = -1; i < repeats; ++i) {
    if (before_each) before_each();
    const double start = bench_seconds();
    run();
    if (i >= 0) seconds.push_back(bench_seconds() - start);
  }
  std::sort(seconds.begin(), seconds.end());
  const size_t middle = seconds.size() / 2;
  return seconds.size() % 2 ? seconds[middle] : (seconds[middle - 1] + seconds[middle]) / 2;
}

Bench::Bench(std::string precision, int repeats)
    : precision_(std::move(precision)),
      arithmetic_(precision_ == "bf16" && bf16_pays(c10::DeviceType::CPU) ? "bf16" : "fp32"),
      repeats_(repeats) {
  report_.machine = measure_peak();
}

double Bench::peak_gflops() const {
  return arithmetic_ == "bf16" ? report_.machine.bf16_gflops : report_.machine.sgemm_gflops;
}

BenchRow& Bench::measure(const std::string& name, const std::function<void()>& run, bool with_memory,
                         const std::function<void()>& before_each) {
  BenchRow row;
  row.name = name;
  row.precision = precision_;
  row.arithmetic = arithmetic_;
  if (with_memory) reset_peak_memory();
  row.seconds = median_seconds(repeats_, run, before_each);
  if (with_memory) row.peak_memory_mb = static_cast<double>(peak_memory_bytes()) / 1e6;
  if (before_each) before_each();
  row.percent_of_peak = 100 * count_flops(run) / 1e9 / row.seconds / peak_gflops();
  report_.rows.push_back(row);
  if (on_row) on_row(report_.rows.back());
  return report_.rows.back();
}

}  // namespace melete

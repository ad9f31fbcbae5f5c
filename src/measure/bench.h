// Timings that can be compared: medians within one run, beside what this machine's matrix products reach.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "measure/machine_peak.h"

namespace melete {

class Schema;

struct BenchRow {
  std::string name;            // "soundstream.train_step"
  std::string precision;       // that was asked for: fp32, bf16 or, for generation, int8
  std::string arithmetic;      // that it was computed in: see bf16_pays
  double seconds = 0;          // median
  double percent_of_peak = 0;  // 0 where it makes no sense
  double peak_memory_mb = 0;   // of the process while it ran; 0 where it was not measured
  std::string note;            // "36 x real time"
};

struct BenchReport {
  MachinePeak machine;
  std::vector<BenchRow> rows;

  nlohmann::ordered_json json() const;
};

// Median seconds of `repeats` runs after one to warm up; before_each is not timed.
double median_seconds(int repeats, const std::function<void()>& run,
                      const std::function<void()>& before_each = {});

// Something to time, with its settings as one table.
class Bench;
class Benchmark {
 public:
  virtual ~Benchmark() = default;
  virtual void describe(Schema& schema) = 0;
  virtual std::vector<std::string> precisions() const { return {"fp32", "bf16"}; }
  virtual void run(Bench& bench, const std::string& precision) = 0;
};

class Bench {
 public:
  Bench(std::string precision, int repeats);

  // Times one piece of work and counts its operations once. `with_memory` measures the peak of the process,
  // too.
  BenchRow& measure(const std::string& name, const std::function<void()>& run, bool with_memory = false,
                    const std::function<void()>& before_each = {});
  const BenchReport& report() const { return report_; }
  // Called after every row.
  std::function<void(const BenchRow&)> on_row;

 private:
  double peak_gflops() const;

  std::string precision_, arithmetic_;
  int repeats_;
  BenchReport report_;
};

}  // namespace melete

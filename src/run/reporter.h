// What a run tells the world, as plain values: the trainer speaks to one Reporter; the terminal,
// metrics.jsonl, TensorBoard and the live page each listen in their own way.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace melete {

using NamedValues = std::vector<std::pair<std::string, double>>;

// What a figure is expected to be at a step.
struct Band {
  double low = 0, high = 0;
};
using Bands = std::map<std::string, Band>;  // by figure

// The one figure of validation that says how good a model is.
struct MainFigure {
  std::string name = "loss";
  bool higher_is_better = false;
};

struct RunStart {
  std::string task;
  std::string settings_table;                                     // as Schema::table() gives it
  std::vector<std::pair<std::string, int64_t>> parameter_counts;  // part -> count
  std::vector<std::string> data;                                  // description lines
  int64_t threads = 1;
  std::string precision;
  std::string device;
  int64_t resumed_from_step = -1;  // -1: from the beginning
  int64_t steps_total = 0;
  std::string folder;
  MainFigure main_figure = {};
  std::vector<std::string> expected = {};  // lines on what the recipe gave where it was measured
};

struct StepReport {
  int64_t step = 0;
  int64_t steps_total = 0;
  NamedValues losses;
  NamedValues gradient_norms;                   // per phase
  NamedValues learning_rates;                   // per phase
  std::map<std::string, double> chance_levels;  // by name of the loss: what guessing would give
  double seconds = 0;
  double data_wait_seconds = 0;
  double items_per_second = 0;
  bool skipped = false;  // a loss or gradient was not finite, and the weights did not move
  std::string skip_reason;
  int64_t skipped_total = 0;
  Bands expected = {};                            // of the losses, where the recipe was measured
  std::vector<std::string> opponent_losses = {};  // of phases after the first: discriminators
};

struct ValidationReport {
  int64_t step = 0;
  NamedValues losses;
  std::map<std::string, double> chance_levels;
  std::string label;  // "online" or "ema"
  Bands expected = {};
};

class Reporter {
 public:
  virtual ~Reporter() = default;
  virtual void start(const RunStart&) {}
  virtual void step(const StepReport&) {}
  virtual void validation(const ValidationReport&) {}
  virtual void saved(const std::string& /*path*/, int64_t /*step*/) {}
  virtual void sample_written(const std::string& /*path*/) {}
  virtual void note(const std::string& /*text*/) {}
  virtual void warning(const std::string& /*text*/) {}
  virtual void finished(const std::string& /*reason*/) {}
};

// Passes everything on to several reporters, which must outlive it.
class Reporters : public Reporter {
 public:
  void add(Reporter& reporter) { all_.push_back(&reporter); }

  void start(const RunStart& run) override {
    for (Reporter* r : all_) r->start(run);
  }
  void step(const StepReport& report) override {
    for (Reporter* r : all_) r->step(report);
  }
  void validation(const ValidationReport& report) override {
    for (Reporter* r : all_) r->validation(report);
  }
  void saved(const std::string& path, int64_t step) override {
    for (Reporter* r : all_) r->saved(path, step);
  }
  void sample_written(const std::string& path) override {
    for (Reporter* r : all_) r->sample_written(path);
  }
  void note(const std::string& text) override {
    for (Reporter* r : all_) r->note(text);
  }
  void warning(const std::string& text) override {
    for (Reporter* r : all_) r->warning(text);
  }
  void finished(const std::string& reason) override {
    for (Reporter* r : all_) r->finished(reason);
  }

 private:
  std::vector<Reporter*> all_;
};

}  // namespace melete

// metrics.jsonl of one run, followed while it grows: the rows as columns, and what a person wants to know
// first.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace melete {

// Rows of one kind. A column has a value for every row; NaN where a row has none.
struct MetricTable {
  std::vector<int64_t> steps;
  std::vector<double> seconds;  // trained so far; pauses between a stop and a resume are left out
  std::map<std::string, std::vector<float>> columns;

  size_t rows() const { return steps.size(); }
  void add_row(int64_t step, double trained_seconds);
  void set(const std::string& column, float value);  // of the newest row
};

struct LoggedText {
  int64_t step = 0;
  double time = 0;  // since 1970
  std::string text;
};

// What the newest rows say.
struct RunProgress {
  std::string task, precision, device, finished_reason;
  std::vector<std::string> data;
  nlohmann::ordered_json parameters = nlohmann::ordered_json::object();
  int64_t threads = 0, step = 0, steps_total = 0, skipped_total = 0, rollbacks = 0, starts = 0, saved = 0;
  double started_time = 0, newest_time = 0, trained_seconds = 0;  // by the clock of the machine that trains
  double heard_time = 0;  // when its newest rows came, by the clock of this one
  double seconds_per_step = 0, data_wait_share = 0, items_per_second = 0;  // over the last steps
  std::string newest_sample;                                               // as the row names it
  std::vector<std::pair<std::string, double>> losses;  // of the newest step, in their order
  std::map<std::string, double> chance_levels;
  std::map<std::string, std::pair<double, double>> expected;  // of the newest step: low and high by loss
};

class RunMetrics {
 public:
  explicit RunMetrics(std::string path);

  // Reads on from where it stopped, at most about `max_bytes`; true where something was new. A file that was
  // replaced or has become shorter (a resumed run cuts lost steps) is read anew.
  bool poll(size_t max_bytes);
  bool caught_up() const { return caught_up_; }

  const RunProgress& progress() const { return progress_; }
  const MetricTable& steps() const { return steps_; }
  const std::map<std::string, MetricTable>& validations() const { return validations_; }  // by label
  const std::deque<LoggedText>& warnings() const { return warnings_; }
  const std::deque<LoggedText>& notes() const { return notes_; }
  int64_t warning_count() const { return warning_count_; }
  int64_t unreadable_rows() const { return unreadable_rows_; }

  // Every name that curves() of this run knows: "loss/mel", "gradient_norm/generator", "validation/ema/loss".
  std::vector<std::string> series_names() const;
  // The table and column behind a name; both null where there is none.
  std::pair<const MetricTable*, const std::vector<float>*> find(const std::string& series) const;
  // Seconds of training when the run first came to each of these steps (ascending); of steps that are still
  // ahead, when it will at the speed of its last steps.
  std::vector<double> seconds_at(const std::vector<int64_t>& steps) const;

 private:
  void forget();
  void take(std::string_view line);
  void take_step(const nlohmann::ordered_json& row, double time);
  void take_start(const nlohmann::ordered_json& row, double time);

  struct Window {  // of gradient norms, for their z-scores
    std::array<float, 128> values;
    size_t count = 0;
    float z_score(float value);  // against the window, then takes the value in
  };
  struct Recent {
    double time, seconds, wait, items;
    int64_t step;
  };

  std::string path_, partial_;
  uint64_t offset_ = 0, inode_ = 0;
  bool caught_up_ = false;
  RunProgress progress_;
  MetricTable steps_;
  std::map<std::string, MetricTable> validations_;
  std::map<std::string, Window> windows_;
  std::deque<Recent> recent_;
  std::deque<LoggedText> warnings_, notes_;
  int64_t warning_count_ = 0, unreadable_rows_ = 0;
  double last_row_time_ = 0;
  int64_t newest_sample_step_ = -1;
};

}  // namespace melete

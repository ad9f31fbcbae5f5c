// A training run on the terminal: a header with everything that was decided, then one line a step under named
// columns, with a progress bar at the bottom of a terminal and plain lines in a file.
#pragma once

#include <algorithm>
#include <cstdio>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "run/reporter.h"

namespace melete {

// How far a value lies from the last 128 before it, in standard deviations.
class RollingScore {
 public:
  // NaN until there are enough values to say; then takes the value in. Values that are not finite are not
  // kept.
  double score(double value);
  double mean() const;

 private:
  std::deque<double> values_;
};

// Which columns a step's line has.
enum class Columns {
  main,  // step, loss beside chance and expectation, the newest figure of quality, rate, milliseconds, time
         // left
  all,   // every loss, norm and rate
};

class TrainingDisplay : public Reporter {
 public:
  explicit TrainingDisplay(std::FILE* stream = stdout, Columns columns = Columns::main);
  ~TrainingDisplay() override;

  void start(const RunStart& run) override;
  void step(const StepReport& report) override;
  void validation(const ValidationReport& report) override;
  void saved(const std::string& path, int64_t step) override;
  void sample_written(const std::string& path) override;
  void note(const std::string& text) override;
  void warning(const std::string& text) override;
  void finished(const std::string& reason) override;

 private:
  struct Column {
    std::string name, title;
    size_t width;
    bool shown = true;
    size_t room() const { return std::max(width, title.size()); }
  };
  using Cells = std::vector<std::pair<std::string, std::string>>;  // column -> text, in order

  Cells cells_of(const StepReport& report);
  Cells main_cells(const StepReport& report) const;
  Cells all_cells(const StepReport& report);
  bool add_columns(const Cells& cells);  // whether there was a new one
  void lay_out();
  size_t set_titles(size_t limit);  // -> width of the line
  size_t line_width() const;
  void print_header();
  void print_line(const std::string& text);  // above the bar
  void draw_bar();

  std::FILE* stream_;
  Columns which_;
  bool terminal_, colour_, bar_drawn_ = false;
  std::vector<Column> columns_;
  std::map<std::string, RollingScore> norms_;
  std::map<std::string, double> chance_levels_;
  RollingScore seconds_;
  std::string main_figure_, quality_;  // its name, and its newest value
  int64_t lines_since_header_ = 0, step_ = 0, steps_total_ = 0;
};

}  // namespace melete

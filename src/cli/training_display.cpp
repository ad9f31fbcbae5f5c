#include "cli/training_display.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "cli/terminal.h"
#include "config/wrap.h"
#include "core/autocast.h"
#include "run/expectation.h"
#include "run/figure_names.h"

namespace melete {
namespace {

constexpr size_t window = 128;        // as many values as a z-score looks back
constexpr size_t enough_values = 16;  // fewer say nothing about what is usual
constexpr size_t widest_line = 160;   // in a file; on a terminal as wide as that is
constexpr size_t narrowest_line = 80;
constexpr size_t narrowest_column = 7;  // "1.2e-05"
constexpr size_t widest_title = 28;
constexpr int64_t header_every_lines = 40;

// "discriminator.scale_0" in 7 columns: every part cut to as many letters as fit.
std::string shortened_name(const std::string& name, size_t width) {
  if (name.size() <= width) return name;
  for (size_t letters = name.size(); letters >= 1; --letters) {
    std::string out;
    size_t in_part = 0;
    for (const char c : name) {
      const bool separator = c == '.' || c == '_' || c == ' ' || c == '|';
      in_part = separator ? 0 : in_part + 1;
      if (separator ? c != '_' || letters > 2 : in_part <= letters) out += c;
    }
    if (out.size() <= width) return out;
  }
  return name.substr(0, width);
}

std::string milliseconds(double seconds) {
  const double value = seconds * 1e3;
  return fmt::format("{:.{}f}", value, value < 9.95 ? 1 : 0);
}

std::string rate_text(double per_second) {
  return fmt::format("{:.{}f}", per_second, per_second < 9.995 ? 2 : per_second < 99.95 ? 1 : 0);
}

std::string left_text(double seconds) {
  if (!std::isfinite(seconds)) return "?";
  const auto whole = static_cast<int64_t>(std::llround(std::max(0.0, seconds)));
  if (whole < 60) return fmt::format("{}s", whole);
  if (whole < 3600) return fmt::format("{}m{:02}s", whole / 60, whole % 60);
  if (whole < 86400) return fmt::format("{}h{:02}m", whole / 3600, whole / 60 % 60);
  return fmt::format("{}d{:02}h", whole / 86400, whole / 3600 % 24);
}

// 2.00e-4: the exponent's leading zero is dropped.
std::string learning_rate_text(double value) {
  std::string out = value == 0 ? "0" : fmt::format("{:.2e}", value);
  const size_t exponent = out.find('e');
  if (exponent != std::string::npos && out[exponent + 2] == '0') out.erase(exponent + 2, 1);
  return out;
}

// At most five characters; a gradient norm needs no more digits.
std::string norm_text(double value) {
  if (!std::isfinite(value)) return short_number(value);
  if (value != 0 && (value < 0.0995 || value >= 9999.5)) return fmt::format("{:.0e}", value);
  return fmt::format("{:.{}f}", value, value < 9.995 ? 2 : value < 99.95 ? 1 : 0);
}

// Phases that share a learning rate need it only once.
bool all_equal(const NamedValues& values) {
  return std::all_of(values.begin(), values.end(),
                     [&](const auto& v) { return v.second == values[0].second; });
}

// " (chance 6.2, expected 1.3 to 1.6)"; the latter only where asked for, or the line would be twice as long
std::string beside(const ValidationReport& report, const std::string& name, bool with_expected) {
  std::string text;
  if (const auto chance = report.chance_levels.find(name); chance != report.chance_levels.end())
    text = "chance " + short_number(chance->second);
  if (const auto band = report.expected.find(name); with_expected && band != report.expected.end())
    text += (text.empty() ? "expected " : ", expected ") + band_text(band->second);
  return text.empty() ? "" : " (" + text + ")";
}

// Levels that follow the batch change a little in every step; that is nothing to announce.
bool differ(const std::map<std::string, double>& before, const std::map<std::string, double>& now) {
  constexpr double kWorthSaying = 0.25;
  if (before.size() != now.size()) return true;
  for (const auto& [name, level] : now) {
    const auto found = before.find(name);
    if (found == before.end() || std::abs(level - found->second) > kWorthSaying * std::abs(found->second))
      return true;
  }
  return false;
}

}  // namespace

double RollingScore::mean() const {
  double sum = 0;
  for (const double value : values_) sum += value;
  return values_.empty() ? std::numeric_limits<double>::quiet_NaN()
                         : sum / static_cast<double>(values_.size());
}

double RollingScore::score(double value) {
  double score = std::numeric_limits<double>::quiet_NaN();
  if (values_.size() >= enough_values && std::isfinite(value)) {
    const double centre = mean();
    double squares = 0;
    for (const double before : values_) squares += (before - centre) * (before - centre);
    const double deviation = std::sqrt(squares / static_cast<double>(values_.size()));
    if (deviation > 0)
      score = (value - centre) / deviation;
    else
      score = value == centre ? 0 : std::copysign(std::numeric_limits<double>::infinity(), value - centre);
  }
  if (std::isfinite(value)) {
    values_.push_back(value);
    if (values_.size() > window) values_.pop_front();
  }
  return score;
}

TrainingDisplay::TrainingDisplay(std::FILE* stream, Columns columns)
    : stream_(stream), which_(columns), terminal_(is_terminal(stream)), colour_(wants_colour(stream)) {}

TrainingDisplay::~TrainingDisplay() {
  if (bar_drawn_) fmt::print(stream_, "\r\x1b[K");
  std::fflush(stream_);
}

void TrainingDisplay::print_line(const std::string& text) {
  if (bar_drawn_) fmt::print(stream_, "\r\x1b[K");
  bar_drawn_ = false;
  fmt::print(stream_, "{}\n", text);
  draw_bar();
  std::fflush(stream_);  // a log file is read while the run goes on
}

void TrainingDisplay::draw_bar() {
  if (!terminal_ || steps_total_ <= 0 || step_ <= 0) return;
  // The bar's own clock would not know of the steps before a resume, so it is given the usual time of a step.
  const double seconds = seconds_.mean() * static_cast<double>(step_);
  const int width = terminal_width(stream_) - 1;
  fmt::print(stream_, "\r\x1b[K{}",
             coloured(progress_line("training", step_, steps_total_, "steps", seconds, "", width),
                      Colour::cyan, colour_));
  bar_drawn_ = true;
}

void TrainingDisplay::start(const RunStart& run) {
  steps_total_ = run.steps_total;
  main_figure_ = run.main_figure.name;
  print_line(coloured(fmt::format("training {}", run.task), Colour::bold, colour_));
  std::string settings = run.settings_table;
  while (!settings.empty() && settings.back() == '\n') settings.pop_back();
  if (!settings.empty()) print_line("\n" + settings + "\n");

  TextTable facts({"", ""});
  int64_t total = 0;
  std::string parts;
  for (const auto& [part, count] : run.parameter_counts) {
    total += count;
    parts += fmt::format("{}{} {}", parts.empty() ? "" : ", ", part, human_count(static_cast<double>(count)));
  }
  if (!run.parameter_counts.empty()) {
    facts.row({"parameters", human_count(static_cast<double>(total)) +
                                 (run.parameter_counts.size() > 1 ? " (" + parts + ")" : "")});
  }
  for (size_t i = 0; i < run.data.size(); ++i) facts.row({i == 0 ? "data" : "", run.data[i]});
  facts.row({"engine", fmt::format("{} thread{}, {}{}{}", run.threads, run.threads == 1 ? "" : "s",
                                   run.device, run.device.empty() ? "" : ", ", run.precision)});
  if (run.precision == "bf16" && run.device == "cpu" && !bf16_pays(at::kCPU))
    facts.row({"", "this processor has no bf16 instructions: it computes in fp32"});
  if (!run.folder.empty()) facts.row({"run folder", run.folder});
  for (size_t i = 0; i < run.expected.size(); ++i) facts.row({i == 0 ? "expected" : "", run.expected[i]});
  facts.row({"steps", run.resumed_from_step >= 0
                          ? fmt::format("{}, resumed from step {}", run.steps_total, run.resumed_from_step)
                          : fmt::format("{}, from the beginning", run.steps_total)});
  print_line(facts.text());
}

// Every cell is padded to a width that its column keeps, so that the header stays true.
TrainingDisplay::Cells TrainingDisplay::cells_of(const StepReport& report) {
  const std::string total = std::to_string(report.steps_total);
  seconds_.score(report.seconds);
  Cells cells{{"step", fmt::format("{:>{}}/{}", report.step, total.size(), total)}};
  const Cells middle = which_ == Columns::all ? all_cells(report) : main_cells(report);
  cells.insert(cells.end(), middle.begin(), middle.end());
  const double left = seconds_.mean() * static_cast<double>(report.steps_total - report.step);
  cells.emplace_back("left", fmt::format("{:>6}", left_text(left)));
  return cells;
}

// The loss of the first phase: a discriminator's says nothing to a person.
TrainingDisplay::Cells TrainingDisplay::main_cells(const StepReport& report) const {
  Cells cells;
  if (!report.losses.empty()) {
    const auto& [name, value] = report.losses.front();
    cells.emplace_back(name, fmt::format("{:>7}", short_number(value)));
    if (const auto band = report.expected.find(name); band != report.expected.end())
      cells.emplace_back("expected", fmt::format("{:>16}", band_text(band->second)));
    if (const auto chance = report.chance_levels.find(name); chance != report.chance_levels.end())
      cells.emplace_back("chance", fmt::format("{:>7}", short_number(chance->second)));
  }
  // Validation's "loss" has its own column, or it would be taken for the training's.
  if (!main_figure_.empty())
    cells.emplace_back(main_figure_ == "loss" ? "held-out loss" : main_figure_,
                       fmt::format("{:>7}", quality_.empty() ? "-" : quality_));
  if (!report.learning_rates.empty())
    cells.emplace_back("rate", fmt::format("{:>7}", learning_rate_text(report.learning_rates[0].second)));
  cells.emplace_back("ms", fmt::format("{:>5}", milliseconds(report.seconds)));
  return cells;
}

TrainingDisplay::Cells TrainingDisplay::all_cells(const StepReport& report) {
  Cells cells;
  for (const auto& [name, value] : report.losses)
    cells.emplace_back(name, fmt::format("{:>7}", short_number(value)));
  for (const auto& [name, value] : report.gradient_norms) {
    const double score = norms_[name].score(value);
    const std::string deviations =
        std::isnan(score) ? "" : fmt::format("{:+.1f}", std::clamp(score, -99.0, 99.0));
    cells.emplace_back(name.empty() ? "|grad| z" : "|" + name + "| z",
                       fmt::format("{:>5} {:>5}", norm_text(value), deviations));
  }
  if (!report.learning_rates.empty() && all_equal(report.learning_rates)) {
    cells.emplace_back("rate", fmt::format("{:>7}", learning_rate_text(report.learning_rates[0].second)));
  } else {
    for (const auto& [name, value] : report.learning_rates) {
      cells.emplace_back("rate " + name, fmt::format("{:>7}", learning_rate_text(value)));
    }
  }
  cells.emplace_back("ms", fmt::format("{:>5}", milliseconds(report.seconds)));
  cells.emplace_back("wait", fmt::format("{:>4}", milliseconds(report.data_wait_seconds)));
  cells.emplace_back("item/s", fmt::format("{:>5}", rate_text(report.items_per_second)));
  return cells;
}

bool TrainingDisplay::add_columns(const Cells& cells) {
  bool changed = false;
  size_t place = 0;  // a loss that first appears later (a gradient penalty) goes where its step names it
  for (const auto& [name, text] : cells) {
    const auto found =
        std::find_if(columns_.begin(), columns_.end(), [&](const auto& c) { return c.name == name; });
    if (found == columns_.end()) {
      columns_.insert(columns_.begin() + static_cast<std::ptrdiff_t>(place), {name, name, text.size(), true});
      ++place;
      changed = true;
    } else {
      changed = changed || text.size() > std::max(found->width, found->title.size());
      found->width = std::max(found->width, text.size());
      place = static_cast<size_t>(found - columns_.begin()) + 1;
    }
  }
  return changed;
}

size_t TrainingDisplay::line_width() const {
  return terminal_ ? std::max(narrowest_line, static_cast<size_t>(terminal_width(stream_)) - 1) : widest_line;
}

size_t TrainingDisplay::set_titles(size_t limit) {
  size_t total = 0;
  std::set<std::string> used;
  for (Column& column : columns_) {
    column.title = shortened_name(column.name, std::max(limit, column.width));
    for (char digit = '2'; !used.insert(column.title).second && digit <= '9'; ++digit) {
      column.title.resize(std::min(column.title.size(), narrowest_column - 1));
      column.title += digit;
    }
    column.width = std::max({column.width, std::min(column.name.size(), narrowest_column)});
    if (column.shown) total += column.room() + 1;
  }
  return total == 0 ? 0 : total - 1;
}

namespace {

// What is left out first where a line has no room for all: norms but the first, then rates, then the last
// losses. 0: never.
int importance_rank(const std::string& name, bool first_norm) {
  for (const char* kept : {"step", "ms", "wait", "item/s", "left"})
    if (name == kept) return 0;
  if (name.starts_with("|")) return first_norm ? 0 : 3;
  return name.starts_with("rate") ? 2 : 1;
}

}  // namespace

// One line a step: titles as long as it allows, cut part by part, and never two alike; columns for which
// there is no room even then are left to metrics.jsonl.
void TrainingDisplay::lay_out() {
  for (Column& column : columns_) column.shown = true;
  for (size_t limit = widest_title; limit >= narrowest_column; --limit)
    if (set_titles(limit) <= line_width()) return;
  const auto first_norm = std::find_if(columns_.begin(), columns_.end(),
                                       [](const Column& column) { return column.name.starts_with("|"); });
  for (int rank = 3; rank >= 1; --rank)
    for (size_t i = columns_.size(); i-- > 1;) {
      const bool first = columns_.begin() + static_cast<std::ptrdiff_t>(i) == first_norm;
      if (importance_rank(columns_[i].name, first) != rank) continue;
      columns_[i].shown = false;
      if (set_titles(narrowest_column) <= line_width()) return;
    }
}

namespace {

class LineBuilder {
 public:
  void add(const std::string& text, size_t width) {
    if (!out_.empty()) out_ += ' ';
    out_ += std::string(width - std::min(width, display_width(text)), ' ') + text;
  }
  const std::string& text() const { return out_; }

 private:
  std::string out_;
};

}  // namespace

void TrainingDisplay::print_header() {
  LineBuilder line;
  std::string legend, left_out;
  for (const Column& column : columns_) {
    if (!column.shown) {
      left_out += fmt::format("{}{}", left_out.empty() ? "" : ", ", column.name);
      continue;
    }
    line.add(column.title, column.room());
    if (column.title != column.name)
      legend += fmt::format("{}{} = {}", legend.empty() ? "" : ", ", column.title, column.name);
  }
  std::string chances;
  for (const auto& [name, level] : chance_levels_) {
    chances += fmt::format("{}{} {}", chances.empty() ? "" : ", ", name, short_number(level));
  }
  if (!legend.empty())
    print_line(coloured(wrap_text("columns: " + legend, 0, line_width()), Colour::dim, colour_));
  if (!left_out.empty())
    print_line(coloured(wrap_text("only in metrics.jsonl, for want of room: " + left_out, 0, line_width()),
                        Colour::dim, colour_));
  if (!chances.empty() && which_ == Columns::all)
    print_line(coloured("chance levels: " + chances, Colour::dim, colour_));
  print_line(coloured(line.text(), Colour::bold, colour_));
  lines_since_header_ = 0;
}

void TrainingDisplay::step(const StepReport& report) {
  step_ = report.step;
  steps_total_ = report.steps_total;
  const Cells cells = cells_of(report);
  const bool new_chances =
      which_ == Columns::all && !report.chance_levels.empty() && differ(chance_levels_, report.chance_levels);
  if (new_chances) chance_levels_ = report.chance_levels;
  const bool new_columns = add_columns(cells);
  if (new_columns) lay_out();
  if (new_columns || new_chances || lines_since_header_ >= header_every_lines) print_header();

  LineBuilder line;
  for (const Column& column : columns_) {
    if (!column.shown) continue;
    const auto found =
        std::find_if(cells.begin(), cells.end(), [&](const auto& cell) { return cell.first == column.name; });
    line.add(found == cells.end() ? "" : found->second, column.room());
  }
  ++lines_since_header_;
  print_line(report.skipped ? coloured(line.text(), Colour::yellow, colour_) : line.text());
  if (report.skipped) {
    warning(fmt::format("step {} skipped: {} ({} so far)", report.step,
                        report.skip_reason.empty() ? "not finite" : report.skip_reason,
                        report.skipped_total));
  }
}

void TrainingDisplay::validation(const ValidationReport& report) {
  std::string text =
      fmt::format("validation at step {}{}{}:", report.step, report.label.empty() ? "" : ", ", report.label);
  for (const auto& [name, value] : report.losses) {
    if (name == main_figure_) quality_ = short_number(value);  // the average, where there is one, comes last
    if (is_one_of_many(name) && name != main_figure_)
      continue;  // for files and the studio: a line has no room for them
    text += fmt::format("  {} {}{}", name, short_number(value),
                        beside(report, name, name == "loss" || name == main_figure_));
  }
  print_line(coloured(text, Colour::green, colour_));
}

void TrainingDisplay::saved(const std::string& path, int64_t step) {
  print_line(fmt::format("saved {} (step {})", path, step));
}

void TrainingDisplay::sample_written(const std::string& path) {
  print_line("wrote " + path);
}
void TrainingDisplay::note(const std::string& text) {
  print_line(text);
}
void TrainingDisplay::warning(const std::string& text) {
  print_line(coloured("warning: " + text, Colour::yellow, colour_));
}

void TrainingDisplay::finished(const std::string& reason) {
  steps_total_ = 0;  // no bar any more
  print_line(coloured(reason, Colour::bold, colour_));
}

}  // namespace melete

#include "studio/run_metrics.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

namespace melete {

namespace {

using nlohmann::ordered_json;

constexpr float kNone = std::numeric_limits<float>::quiet_NaN();
constexpr double kNotFinite = std::numeric_limits<double>::infinity();
constexpr size_t kRecentSteps = 50, kTextsKept = 100, kLongestRow = 1 << 20;
constexpr double kZScoreFloor = 1e-12;

double local_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// A number, or what a number that is not finite was written as.
double number(const ordered_json& value) {
  if (value.is_number()) return value.get<double>();
  if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    if (text == "inf") return std::numeric_limits<double>::infinity();
    if (text == "-inf") return -std::numeric_limits<double>::infinity();
  }
  return std::numeric_limits<double>::quiet_NaN();
}

double number(const ordered_json& row, const char* key, double otherwise = 0) {
  const auto found = row.find(key);
  return found == row.end() ? otherwise : number(*found);
}

int64_t whole(const ordered_json& row, const char* key, int64_t otherwise = 0) {
  const auto found = row.find(key);
  return found != row.end() && found->is_number_integer() ? found->get<int64_t>() : otherwise;
}

std::string text(const ordered_json& row, const char* key) {
  const auto found = row.find(key);
  return found != row.end() && found->is_string() ? found->get<std::string>() : "";
}

void add_group(MetricTable& table, const ordered_json& row, const char* key, const std::string& prefix) {
  const auto group = row.find(key);
  if (group == row.end() || !group->is_object()) return;
  for (const auto& [name, value] : group->items()) {
    const double finite_or_not = number(value);
    // NaN stands for "no value in this row"; a value that was none is kept as an infinity, which no curve
    // shows either.
    table.set(prefix + name, static_cast<float>(std::isnan(finite_or_not) ? kNotFinite : finite_or_not));
  }
}

void keep_text(std::deque<LoggedText>& texts, const ordered_json& row, int64_t step, double time) {
  texts.push_back({step, time, text(row, "text")});
  if (texts.size() > kTextsKept) texts.pop_front();
}

}  // namespace

void MetricTable::add_row(int64_t step, double trained_seconds) {
  steps.push_back(step);
  seconds.push_back(trained_seconds);
  for (auto& [name, values] : columns) values.push_back(kNone);
}

void MetricTable::set(const std::string& column, float value) {
  auto& values = columns[column];
  values.resize(rows(), kNone);
  values.back() = value;
}

float RunMetrics::Window::z_score(float value) {
  const size_t held = std::min(count, values.size());
  float score = 0;
  if (held >= 8) {  // fewer say nothing about a spread
    double sum = 0, squares = 0;
    for (size_t i = 0; i < held; ++i) sum += values[i];
    const double mean = sum / static_cast<double>(held);
    for (size_t i = 0; i < held; ++i) squares += (values[i] - mean) * (values[i] - mean);
    const double deviation = std::sqrt(squares / static_cast<double>(held));
    score = static_cast<float>((value - mean) / std::max(deviation, kZScoreFloor));
  }
  if (std::isfinite(value)) values[count++ % values.size()] = value;
  return score;
}

RunMetrics::RunMetrics(std::string path) : path_(std::move(path)) {}

void RunMetrics::forget() {
  const std::string path = path_;
  *this = RunMetrics(path);
}

bool RunMetrics::poll(size_t max_bytes) {
  const int file = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) {
    caught_up_ = true;
    return false;
  }
  struct stat status {};
  bool changed = false;
  if (::fstat(file, &status) == 0 && S_ISREG(status.st_mode)) {
    if (static_cast<uint64_t>(status.st_ino) != inode_ || static_cast<uint64_t>(status.st_size) < offset_) {
      changed = inode_ != 0;
      forget();
      inode_ = static_cast<uint64_t>(status.st_ino);
    }
    std::vector<char> buffer(1 << 16);
    for (size_t taken = 0; taken < max_bytes;) {
      const ssize_t count = ::pread(file, buffer.data(), buffer.size(), static_cast<off_t>(offset_));
      if (count <= 0) break;
      taken += static_cast<size_t>(count);
      offset_ += static_cast<uint64_t>(count);
      changed = true;
      std::string_view bytes(buffer.data(), static_cast<size_t>(count));
      for (size_t end; (end = bytes.find('\n')) != std::string_view::npos; bytes.remove_prefix(end + 1)) {
        partial_ += bytes.substr(0, end);
        take(partial_);
        partial_.clear();
      }
      // Not a row of ours: a file without line ends must not fill the memory.
      if (partial_.size() + bytes.size() <= kLongestRow) partial_ += bytes;
    }
    // Nobody saw the rows come that were there at first: the file says when.
    if (changed) {
      const double now = local_seconds();
      progress_.heard_time = caught_up_ ? now : std::min(now, static_cast<double>(status.st_mtime));
    }
    caught_up_ = offset_ >= static_cast<uint64_t>(status.st_size);
  }
  ::close(file);
  return changed;
}

void RunMetrics::take(std::string_view line) {
  if (line.empty()) return;
  const ordered_json row = ordered_json::parse(line, nullptr, false);
  const std::string kind = row.is_object() ? text(row, "kind") : "";
  if (kind.empty()) {
    ++unreadable_rows_;
    return;
  }
  const double time = number(row, "time");
  const int64_t step = whole(row, "step");
  if (kind == "start") {
    take_start(row, time);
  } else {
    if (last_row_time_ > 0 && time > last_row_time_) progress_.trained_seconds += time - last_row_time_;
  }
  last_row_time_ = time;
  progress_.newest_time = std::max(progress_.newest_time, time);
  if (progress_.started_time == 0) progress_.started_time = time;
  if (kind == "step") {
    take_step(row, time);
  } else if (kind == "validation") {
    MetricTable& table = validations_[text(row, "label")];
    table.add_row(step, progress_.trained_seconds);
    add_group(table, row, "losses", "");
    if (const auto levels = row.find("chance_levels"); levels != row.end() && levels->is_object())
      for (const auto& [name, value] : levels->items()) progress_.chance_levels[name] = number(value);
  } else if (kind == "saved") {
    ++progress_.saved;
  } else if (kind == "sample") {
    // A step writes sound and its pictures in turn; what can be heard comes first.
    const std::string path = text(row, "path");
    const bool picture = path.ends_with(".png"), heard = progress_.newest_sample.ends_with(".flac");
    if (!(picture && heard && newest_sample_step_ == step)) progress_.newest_sample = path;
    newest_sample_step_ = step;
  } else if (kind == "note") {
    keep_text(notes_, row, step, time);
  } else if (kind == "warning") {
    ++warning_count_;
    keep_text(warnings_, row, step, time);
    if (text(row, "text").find("went back to") != std::string::npos) ++progress_.rollbacks;
  } else if (kind == "finished") {
    progress_.step = std::max(progress_.step, step);
    progress_.finished_reason = text(row, "reason");
    if (progress_.finished_reason.empty()) progress_.finished_reason = "finished";
  }
}

void RunMetrics::take_start(const ordered_json& row, double time) {
  RunProgress& p = progress_;
  p.task = text(row, "task");
  p.precision = text(row, "precision");
  p.device = text(row, "device");
  p.threads = whole(row, "threads");
  p.steps_total = whole(row, "steps_total");
  p.step = whole(row, "step");
  p.finished_reason.clear();
  ++p.starts;
  if (p.started_time == 0) p.started_time = time;
  if (const auto found = row.find("parameters"); found != row.end() && found->is_object())
    p.parameters = *found;
  p.data.clear();
  if (const auto found = row.find("data"); found != row.end() && found->is_array())
    for (const auto& line : *found)
      if (line.is_string()) p.data.push_back(line.get<std::string>());
  recent_.clear();
}

void RunMetrics::take_step(const ordered_json& row, double time) {
  RunProgress& p = progress_;
  p.step = whole(row, "step");
  p.skipped_total = whole(row, "skipped_total");
  steps_.add_row(p.step, p.trained_seconds);
  add_group(steps_, row, "losses", "loss/");
  add_group(steps_, row, "gradient_norms", "gradient_norm/");
  add_group(steps_, row, "learning_rates", "learning_rate/");
  if (const auto norms = row.find("gradient_norms"); norms != row.end() && norms->is_object())
    for (const auto& [phase, value] : norms->items())
      steps_.set("gradient_z/" + phase, windows_[phase].z_score(static_cast<float>(number(value))));
  const double seconds = number(row, "seconds"), wait = number(row, "data_wait_seconds"),
               items = number(row, "items_per_second");
  steps_.set("time/step_seconds", static_cast<float>(seconds));
  steps_.set("time/data_wait_seconds", static_cast<float>(wait));
  steps_.set("time/items_per_second", static_cast<float>(items));
  steps_.set("health/skipped_total", static_cast<float>(p.skipped_total));
  if (const auto losses = row.find("losses"); losses != row.end() && losses->is_object()) {
    p.losses.clear();
    for (const auto& [name, value] : losses->items()) p.losses.emplace_back(name, number(value));
  }
  if (const auto levels = row.find("chance_levels"); levels != row.end() && levels->is_object())
    for (const auto& [name, value] : levels->items()) p.chance_levels[name] = number(value);
  p.expected.clear();
  if (const auto bands = row.find("expected"); bands != row.end() && bands->is_object())
    for (const auto& [name, band] : bands->items())
      if (band.is_array() && band.size() == 2) p.expected[name] = {number(band[0]), number(band[1])};

  recent_.push_back({time, seconds, wait, items, p.step});
  if (recent_.size() > kRecentSteps) recent_.pop_front();
  double all = 0, waited = 0, speed = 0;
  for (const Recent& one : recent_) {
    all += one.seconds;
    waited += one.wait;
    speed += one.items;
  }
  p.data_wait_share = all > 0 ? waited / all : 0;
  p.items_per_second = speed / static_cast<double>(recent_.size());
  // By the clock, so that validation and samples count; the first steps by what they say of themselves.
  const Recent &first = recent_.front(), &last = recent_.back();
  p.seconds_per_step = last.step > first.step
                           ? (last.time - first.time) / static_cast<double>(last.step - first.step)
                           : seconds;
}

std::vector<std::string> RunMetrics::series_names() const {
  std::vector<std::string> names;
  for (const auto& [name, values] : steps_.columns) names.push_back(name);
  for (const auto& [label, table] : validations_)
    for (const auto& [name, values] : table.columns) names.push_back("validation/" + label + "/" + name);
  return names;
}

std::pair<const MetricTable*, const std::vector<float>*> RunMetrics::find(const std::string& series) const {
  const MetricTable* table = &steps_;
  std::string column = series;
  if (series.starts_with("validation/")) {
    const size_t label_end = series.find('/', 11);
    if (label_end == std::string::npos) return {nullptr, nullptr};
    const auto found = validations_.find(series.substr(11, label_end - 11));
    if (found == validations_.end()) return {nullptr, nullptr};
    table = &found->second;
    column = series.substr(label_end + 1);
  }
  const auto values = table->columns.find(column);
  if (values == table->columns.end()) return {nullptr, nullptr};
  return {table, &values->second};
}

std::vector<double> RunMetrics::seconds_at(const std::vector<int64_t>& steps) const {
  std::vector<double> seconds;
  for (size_t row = 0; row < steps_.rows(); ++row)
    while (seconds.size() < steps.size() && steps[seconds.size()] <= steps_.steps[row])
      seconds.push_back(steps_.seconds[row]);
  while (seconds.size() < steps.size())
    seconds.push_back(progress_.trained_seconds +
                      static_cast<double>(steps[seconds.size()] - progress_.step) *
                          progress_.seconds_per_step);
  return seconds;
}

}  // namespace melete

#include "studio/run_index.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>

#include "studio/curves.h"
#include "studio/run_files.h"

namespace melete {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

namespace {

constexpr int kDeepest = 6;
constexpr size_t kMostRuns = 2000, kBytesAtOnce = 4 << 20;
constexpr auto kPollEvery = std::chrono::milliseconds(500);
constexpr int kFindEvery = 4;  // polls
constexpr int64_t kSparkPoints = 60;

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

ordered_json or_null(double value) {
  return std::isfinite(value) ? ordered_json(value) : ordered_json();
}

// The loss that stands for a run in a list.
std::string main_loss(const RunProgress& progress) {
  for (const char* name : {"loss", "total"})
    for (const auto& [loss, value] : progress.losses)
      if (loss == name) return loss;
  return progress.losses.empty() ? "" : progress.losses.front().first;
}

ordered_json texts(const std::deque<LoggedText>& kept) {
  auto list = ordered_json::array();
  for (const LoggedText& one : kept)
    list.push_back({{"step", one.step}, {"time", one.time}, {"text", one.text}});
  return list;
}

void collect(const fs::path& root, const fs::path& folder, int depth, std::vector<fs::path>& found) {
  if (is_run_folder(folder)) {
    found.push_back(folder);
    return;  // what is below belongs to it
  }
  if (depth == 0) return;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (found.size() >= kMostRuns) return;
    const std::string name = entry.path().filename().string();
    // Links are not followed: what they lead to may be outside.
    if (name.starts_with('.') || (depth == kDeepest && name == kStudioFolder) || entry.is_symlink(error) ||
        !entry.is_directory(error))
      continue;
    collect(root, entry.path(), depth - 1, found);
  }
}

}  // namespace

std::string run_state(const RunProgress& progress, double now) {
  const std::string& reason = progress.finished_reason;
  if (!reason.empty()) {
    if (progress.steps_total > 0 && progress.step >= progress.steps_total) return "finished";
    return reason.starts_with("stopped") ? "stopped" : "failed";
  }
  // A validation or a checkpoint between two rows may take many steps' time.
  const double patience = std::max(90.0, 30 * progress.seconds_per_step);
  return now - progress.heard_time < patience ? "running" : "silent";
}

RunIndex::RunIndex(fs::path root) : root_(std::move(root)) {}

RunIndex::~RunIndex() {
  wake();
  if (thread_.joinable()) thread_.join();
}

void RunIndex::wake() {
  stop_ = true;
  news_.notify_all();
}

void RunIndex::follow() {
  thread_ = std::thread([this] {
    for (int round = 0; !stop_; ++round) {
      if (round % kFindEvery == 0) find_runs();
      while (!stop_ && read_new()) {
      }
      std::unique_lock lock(mutex_);
      news_.wait_for(lock, kPollEvery, [this] { return stop_.load(); });
    }
  });
}

void RunIndex::look() {
  find_runs();
  while (read_new()) {
  }
}

void RunIndex::find_runs() {
  std::vector<fs::path> found;
  collect(root_, root_, kDeepest, found);
  std::map<std::string, fs::path> by_id;
  for (const fs::path& folder : found) by_id[folder.lexically_relative(root_).generic_string()] = folder;
  const std::lock_guard lock(mutex_);
  const size_t before = runs_.size();
  std::erase_if(runs_, [&](const auto& run) { return by_id.count(run.first) == 0; });
  bool changed = runs_.size() != before;
  for (const auto& [id, folder] : by_id) {
    if (runs_.count(id) > 0) continue;
    runs_.emplace(id,
                  std::make_unique<Run>(Run{folder, RunMetrics((folder / "metrics.jsonl").string()), 0, ""}));
    changed = true;
  }
  if (!changed) return;
  ids_version_ = ++version_;
  news_.notify_all();
}

bool RunIndex::read_new() {
  bool more = false;
  for (const std::string& id : ids()) {
    const std::lock_guard lock(mutex_);  // a piece at a time, so that nobody waits for a long file
    const auto found = runs_.find(id);
    if (found == runs_.end()) continue;
    Run& run = *found->second;
    bool changed = run.metrics.poll(kBytesAtOnce);
    more |= !run.metrics.caught_up();
    const std::string state = run_state(run.metrics.progress(), now_seconds());
    changed |= state != run.state;
    run.state = state;
    if (!changed) continue;
    run.version = ++version_;
    news_.notify_all();
  }
  return more;
}

std::vector<std::string> RunIndex::ids() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> all;
  for (const auto& [id, run] : runs_) all.push_back(id);
  return all;
}

bool RunIndex::has(const std::string& id) const {
  const std::lock_guard lock(mutex_);
  return runs_.count(id) > 0;
}

bool RunIndex::read(const std::string& id, const std::function<void(const RunMetrics&)>& use) const {
  const std::lock_guard lock(mutex_);
  const auto found = runs_.find(id);
  if (found == runs_.end()) return false;
  use(found->second->metrics);
  return true;
}

ordered_json RunIndex::summary_of(const std::string& id, const Run& run) const {
  const RunProgress& p = run.metrics.progress();
  const std::string state = run_state(p, now_seconds());
  ordered_json out{{"id", id},
                   {"name", id == "." ? root_.filename().string() : id},
                   {"task", p.task},
                   {"state", state},
                   {"reason", p.finished_reason},
                   {"step", p.step},
                   {"steps_total", p.steps_total},
                   {"started", p.started_time},
                   {"updated", p.newest_time},
                   {"heard", p.heard_time},
                   {"trained_seconds", p.trained_seconds},
                   {"seconds_per_step", or_null(p.seconds_per_step)},
                   {"items_per_second", or_null(p.items_per_second)},
                   {"data_wait_share", or_null(p.data_wait_share)}};
  const int64_t left = p.steps_total - p.step;
  out["seconds_left"] = state == "running" && left > 0 && p.step > 0
                            ? or_null(static_cast<double>(left) * p.seconds_per_step)
                            : ordered_json();
  out["skipped_total"] = p.skipped_total;
  out["rollbacks"] = p.rollbacks;
  out["warnings"] = run.metrics.warning_count();
  out["last_warning"] = run.metrics.warnings().empty() ? "" : run.metrics.warnings().back().text;
  out["resumes"] = std::max<int64_t>(0, p.starts - 1);
  out["checkpoints_saved"] = p.saved;
  out["parameters"] = p.parameters;
  out["threads"] = p.threads;
  out["precision"] = p.precision;
  out["device"] = p.device;
  out["data"] = p.data;
  const std::string loss = main_loss(p);
  out["main_loss"] = loss;
  out["losses"] = ordered_json::object();
  for (const auto& [name, value] : p.losses) out["losses"][name] = or_null(value);
  out["chance_levels"] = ordered_json::object();
  for (const auto& [name, value] : p.chance_levels) out["chance_levels"][name] = or_null(value);
  out["expected"] = ordered_json::object();
  for (const auto& [name, band] : p.expected)
    out["expected"][name] = {or_null(band.first), or_null(band.second)};
  // Code use is measured in validation; "online" is what the training sees.
  for (const auto& [label, table] : run.metrics.validations()) {
    const auto use = table.columns.find("code_use");
    if (use != table.columns.end() && !use->second.empty() &&
        (label == "online" || !out.contains("code_use")))
      out["code_use"] = or_null(use->second.back());
  }
  out["spark"] = ordered_json::array();
  if (const auto [table, column] = run.metrics.find("loss/" + loss); column) {
    CurveRequest request;
    request.points = kSparkPoints;
    for (const float value : make_curve(*table, *column, request).mean)
      out["spark"].push_back(or_null(value));
  }
  const std::string sample = newest_sample(run.folder, p.newest_sample);
  out["newest_sample"] = sample.empty() ? "" : fs::path(sample).lexically_relative(root_).generic_string();
  return out;
}

ordered_json RunIndex::summary(const std::string& id) const {
  const std::lock_guard lock(mutex_);
  const auto found = runs_.find(id);
  return found == runs_.end() ? ordered_json() : summary_of(id, *found->second);
}

ordered_json RunIndex::summaries() const {
  auto list = ordered_json::array();
  for (const std::string& id : ids())
    if (auto one = summary(id); !one.is_null()) list.push_back(std::move(one));
  return list;
}

ordered_json RunIndex::details(const std::string& id) const {
  fs::path folder;
  ordered_json out;
  {
    const std::lock_guard lock(mutex_);
    const auto found = runs_.find(id);
    if (found == runs_.end()) return nullptr;
    const Run& run = *found->second;
    folder = run.folder;
    out = summary_of(id, run);
    out["series"] = run.metrics.series_names();
    out["warnings_list"] = texts(run.metrics.warnings());
    out["notes"] = texts(run.metrics.notes());
    out["unreadable_rows"] = run.metrics.unreadable_rows();
  }
  out["config"] = run_config(folder);
  out["checkpoints"] = run_checkpoints(folder);
  out["commands"] = run_commands(folder);
  return out;
}

std::string RunIndex::newest_of_task(const std::string& task) const {
  const std::lock_guard lock(mutex_);
  std::string newest;
  double newest_time = -1;
  for (const auto& [id, run] : runs_) {
    const RunProgress& p = run->metrics.progress();
    if (p.task != task || p.newest_time <= newest_time || p.saved == 0) continue;
    newest = id;
    newest_time = p.newest_time;
  }
  return newest;
}

uint64_t RunIndex::wait(uint64_t seen, int64_t milliseconds) const {
  std::unique_lock lock(mutex_);
  news_.wait_for(lock, std::chrono::milliseconds(milliseconds), [&] { return stop_ || version_ > seen; });
  return version_;
}

ordered_json RunIndex::changed(uint64_t since) const {
  std::vector<std::string> newer;
  ordered_json out{{"runs", ordered_json::array()}};
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, run] : runs_)
      if (run->version > since) newer.push_back(id);
    out["ids"] = ordered_json::array();
    for (const auto& [id, run] : runs_) out["ids"].push_back(id);
  }
  for (const std::string& id : newer)
    if (auto one = summary(id); !one.is_null()) out["runs"].push_back(std::move(one));
  return out;
}

}  // namespace melete

#include "studio/jobs.h"

#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>

#include "core/base/error.h"
#include "core/base/shell_line.h"
#include "io/base/atomic_file.h"
#include "studio/kept_folder.h"
#include "studio/run_files.h"

namespace melete {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

namespace {

constexpr size_t kLinesKept = 60, kMostResults = 64;
// What a process that stays says when a job is over: a mark that no text begins with, then JSON.
constexpr char kRecordMark = '\x1e';

double clock_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// "coarse  : 40% (12/30 steps, 1.2 s)" -> the part's name and 0.4
bool read_progress(const std::string& line, std::string& part, double& share) {
  const size_t sign = line.find('%'), colon = line.rfind(':', sign);
  if (sign == std::string::npos || colon == std::string::npos || sign < colon) return false;
  try {
    share = std::clamp(std::stod(line.substr(colon + 1, sign - colon - 1)) / 100, 0.0, 1.0);
  } catch (const std::exception&) {
    return false;
  }
  part = line.substr(0, line.find_last_not_of(' ', colon - 1) + 1);
  return true;
}

}  // namespace

JobQueue::JobQueue(std::string program, fs::path folder, JobLimits limits)
    : program_(std::move(program)), folder_(std::move(folder)), limits_(limits) {
  clear_old();
  read_kept();
  thread_ = std::thread([this] { work(); });
}

JobQueue::~JobQueue() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    for (const auto& job : jobs_) job->cancel_asked = true;
  }
  news_.notify_all();
  thread_.join();
}

void JobQueue::changed() const {
  news_.notify_all();
  if (on_change) on_change();
}

void JobQueue::read_kept() {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder_, error)) {
    std::ifstream in(entry.path() / "job.json");
    auto kept = ordered_json::parse(in, nullptr, false);
    if (kept.is_object() && kept.value("id", "") == entry.path().filename() && kept.contains("created"))
      earlier_.push_back(std::move(kept));
  }
  std::sort(earlier_.begin(), earlier_.end(),
            [](const ordered_json& a, const ordered_json& b) { return a["created"] > b["created"]; });
}

// Also what was left behind by a studio that ended in the middle of a job.
void JobQueue::clear_old() {
  const auto alive = [this](const std::string& id) {
    const std::lock_guard lock(mutex_);
    return std::any_of(jobs_.begin(), jobs_.end(), [&](const auto& job) {
      return job->id == id && (job->state == "waiting" || job->state == "running");
    });
  };
  for (const std::string& id : clear_oldest(folder_, limits_.kept, limits_.kept_on_disk, alive)) {
    const std::lock_guard lock(mutex_);
    std::erase_if(jobs_, [&](const auto& job) { return job->id == id; });
    std::erase_if(earlier_, [&](const ordered_json& job) { return job["id"] == id; });
  }
}

std::string JobQueue::add(const JobRequest& request) {
  std::string id;
  {
    const std::lock_guard lock(mutex_);
    const auto waiting = static_cast<size_t>(
        std::count_if(jobs_.begin(), jobs_.end(), [](const auto& job) { return job->state == "waiting"; }));
    require(!stop_ && waiting < limits_.waiting,
            "[job] {} jobs are waiting already; try again when some are done", waiting);
    auto job = std::make_unique<Job>();
    job->created = clock_seconds();
    do id = fmt::format("{:.0f}-{}", job->created, ++made_);
    while (fs::exists(folder_ / id));
    job->id = id;
    job->request = request;
    std::error_code error;
    fs::create_directories(folder_ / id, error);
    require(!error, "[job] the folder {} cannot be made: {}", (folder_ / id).string(), error.message());
    job->words = request.words;
    job->words.push_back("-o");
    job->words.push_back(
        (request.extension.empty() ? folder_ / id : folder_ / id / ("result" + request.extension)).string());
    for (const auto& [setting, file] : request.files)
      job->words.push_back("--" + setting + "=" + (folder_ / id / file).string());
    jobs_.push_back(std::move(job));
  }
  changed();
  return id;
}

bool JobQueue::cancel(const std::string& id) {
  bool found = false;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& job : jobs_) {
      if (job->id != id) continue;
      found = true;
      if (job->state == "running") job->cancel_asked = true;
      if (job->state != "waiting") break;
      job->cancel_asked = true;
      job->state = "cancelled";
      job->ended = clock_seconds();
    }
  }
  if (found) changed();
  return found;
}

void JobQueue::work() {
  while (true) {
    Job* next = nullptr;
    {
      std::unique_lock lock(mutex_);
      const auto something = [&] {
        for (const auto& job : jobs_)
          if (job->state == "waiting") {
            next = job.get();
            return true;
          }
        return stop_ || forget_;
      };
      if (!process_)
        news_.wait(lock, something);
      else if (!news_.wait_for(lock, std::chrono::duration<double>(limits_.kept_seconds), something))
        forget_ = true;
      if (stop_) return;
      if (!next || forget_) {
        lock.unlock();
        end_process();
        changed();
        continue;
      }
      next->state = "running";
      next->started = clock_seconds();
    }
    changed();
    run(*next);
    keep(*next);
    clear_old();
    changed();
  }
}

void JobQueue::take_line(Job& job, const std::string& line) {
  const std::lock_guard lock(mutex_);
  std::string part;
  double share = 0;
  if (read_progress(line, part, share)) {
    job.part = part;
    job.share = share;
    return;
  }
  job.last_line = line;
  job.lines.push_back(line);
  if (job.lines.size() > kLinesKept) job.lines.pop_front();
}

void JobQueue::run(Job& job) {
  const auto finish = [&](const std::string& state) {
    std::error_code ignored;
    const std::lock_guard lock(mutex_);
    job.state = state;
    job.ended = clock_seconds();
    fs::remove(live_path(job.id), ignored);  // those who read it have it open
  };
  const bool stays = limits_.kept_models > 0;
  std::vector<std::string> words = job.words;
  if (job.request.streams) words.push_back("--stream=" + live_path(job.id).string());
  try {
    if (!stays) {
      process_ = std::make_unique<Child>(program_, words, limits_.memory_bytes);
      process_->tell_no_more();
    } else if (!process_) {
      process_ = std::make_unique<Child>(
          program_,
          std::vector<std::string>{"studio", "work", fmt::format("--models={}", limits_.kept_models),
                                   fmt::format("--memory={}", static_cast<double>(limits_.kept_bytes) / 1e9)},
          limits_.memory_bytes);
    }
    if (stays)
      process_->tell(ordered_json(words).dump(-1, ' ', false, ordered_json::error_handler_t::replace));
  } catch (const Error& error) {
    end_process();
    take_line(job, error.what());
    return finish("failed");
  }
  bool killed = false, over = false;
  int code = -1;  // that it said itself
  const double deadline = clock_seconds() + limits_.seconds;
  while (!over) {
    bool news = false;
    const bool more = process_->read(200, [&](const std::string& line) {
      news = true;
      if (!stays || line.front() != kRecordMark) return take_line(job, line);
      const auto record = ordered_json::parse(line.substr(1), nullptr, false);
      if (!record.is_object()) return;
      code = record.value("code", 1);
      const std::lock_guard lock(mutex_);
      kept_ = record.value("kept", ordered_json::array());
    });
    bool cancelled;
    {
      const std::lock_guard lock(mutex_);
      cancelled = job.cancel_asked;
    }
    if (code < 0 && !killed && (cancelled || clock_seconds() > deadline)) {
      process_->kill();
      killed = true;
      if (!cancelled)
        take_line(job, fmt::format("[job] stopped: it took longer than {:.0f} s", limits_.seconds));
    }
    // It may be gone while something that it started still holds the pipe.
    over = !more || code >= 0 || (killed && !news);
    if (news) changed();
  }
  bool cancelled;
  {
    const std::lock_guard lock(mutex_);
    cancelled = job.cancel_asked && code != 0;
  }
  if (code < 0) {
    const int status = process_->wait();
    if (!killed && WIFSIGNALED(status))
      take_line(job,
                fmt::format("[job] ended by signal {}: {}", WTERMSIG(status), ::strsignal(WTERMSIG(status))));
    code = WIFEXITED(status) && WEXITSTATUS(status) == 0 && !stays && !killed ? 0 : 1;
    end_process();
  } else if (code == 1) {
    end_process();  // whatever it has left behind inside goes with it
  }
  finish(cancelled ? "cancelled" : code == 0 ? "done" : "failed");
}

void JobQueue::end_process() {
  process_.reset();
  const std::lock_guard lock(mutex_);
  kept_ = ordered_json::array();
  forget_ = false;
}

ordered_json JobQueue::json(const Job& job) const {
  ordered_json out{{"id", job.id},          {"tool", job.request.tool}, {"settings", job.request.settings},
                   {"state", job.state},    {"part", job.part},         {"share", job.share},
                   {"created", job.created}};
  out["started"] = job.started;
  out["ended"] = job.ended;
  std::vector<std::string> words{"melete"};
  words.insert(words.end(), job.words.begin(), job.words.end());
  out["command"] = shell_line(words);
  out["lines"] = job.lines;
  out["results"] = ordered_json::array();
  if (job.state == "done") {
    std::vector<fs::path> files;
    std::error_code error;
    for (const auto& entry : fs::recursive_directory_iterator(folder_ / job.id, error))
      if (entry.is_regular_file(error) && !content_type_of(entry.path()).empty() &&
          entry.path().filename() != "job.json" && files.size() < kMostResults)
        files.push_back(entry.path());
    std::sort(files.begin(), files.end());
    for (const fs::path& file : files)
      out["results"].push_back(file.lexically_relative(folder_).generic_string());
  }
  return out;
}

void JobQueue::keep(const Job& job) const {
  try {
    ordered_json kept;
    {
      const std::lock_guard lock(mutex_);
      kept = json(job);
    }
    write_file_atomically((folder_ / job.id / "job.json").string(), kept.dump(1));
  } catch (const std::exception&) {  // a full disk: the result is still listed until the studio ends
  }
}

void JobQueue::forget_kept() {
  {
    const std::lock_guard lock(mutex_);
    forget_ = true;
  }
  news_.notify_all();
}

ordered_json JobQueue::kept() const {
  const std::lock_guard lock(mutex_);
  return kept_;
}

ordered_json JobQueue::job(const std::string& id) const {
  const std::lock_guard lock(mutex_);
  for (const auto& job : jobs_)
    if (job->id == id) return json(*job);
  for (const ordered_json& kept : earlier_)
    if (kept["id"] == id) return kept;
  return nullptr;
}

ordered_json JobQueue::all() const {
  const std::lock_guard lock(mutex_);
  auto list = ordered_json::array();
  for (auto job = jobs_.rbegin(); job != jobs_.rend(); ++job) list.push_back(json(**job));
  for (const ordered_json& kept : earlier_) list.push_back(kept);
  return list;
}

bool JobQueue::wait_for(const std::string& id, double seconds) const {
  std::unique_lock lock(mutex_);
  return news_.wait_for(lock, std::chrono::duration<double>(seconds), [&] {
    for (const auto& job : jobs_)
      if (job->id == id) return stop_ || (job->state != "waiting" && job->state != "running");
    return true;
  });
}

}  // namespace melete

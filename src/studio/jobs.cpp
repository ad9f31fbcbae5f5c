#include "studio/jobs.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>

#include "core/base/error.h"
#include "io/base/atomic_file.h"
#include "studio/run_files.h"

namespace melete {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

namespace {

constexpr size_t kLinesKept = 60, kLongestLine = 2000, kMostResults = 64;

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

struct Child {
  pid_t process = -1;
  int output = -1;
};

// Its own process group, so that cancelling reaches all that it starts; standard input empty.
Child start_child(const std::string& program, const std::vector<std::string>& words, int64_t memory_bytes) {
  int ends[2];
  require(::pipe2(ends, O_CLOEXEC) == 0, "[job] no pipe: {}", std::strerror(errno));
  std::vector<char*> arguments{const_cast<char*>(program.c_str())};
  for (const std::string& one : words) arguments.push_back(const_cast<char*>(one.c_str()));
  arguments.push_back(nullptr);
  const pid_t process = ::fork();
  if (process == 0) {  // only calls that are safe between fork and exec of a program with threads
    ::setpgid(0, 0);
    sigset_t none;
    sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    if (memory_bytes > 0) {
      const rlimit limit{static_cast<rlim_t>(memory_bytes), static_cast<rlim_t>(memory_bytes)};
      ::setrlimit(RLIMIT_DATA, &limit);
    }
    (void)!::nice(5);
    const int nothing = ::open("/dev/null", O_RDONLY);
    ::dup2(nothing, 0);
    ::dup2(ends[1], 1);
    ::dup2(ends[1], 2);
    ::execv(program.c_str(), arguments.data());
    ::_exit(127);
  }
  ::close(ends[1]);
  if (process < 0) {
    ::close(ends[0]);
    fail("[job] cannot be started: {}", std::strerror(errno));
  }
  ::setpgid(process, process);
  return {process, ends[0]};
}

}  // namespace

std::string shell_line(const std::vector<std::string>& words) {
  std::string line;
  for (const std::string& word : words) {
    const bool plain = !word.empty() && std::all_of(word.begin(), word.end(), [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) || std::strchr("-_./=,:+@%", c);
    });
    if (!line.empty()) line += ' ';
    if (plain) {
      line += word;
      continue;
    }
    line += '\'';
    for (const char c : word) line += c == '\'' ? std::string("'\\''") : std::string(1, c);
    line += '\'';
  }
  return line;
}

JobQueue::JobQueue(std::string program, fs::path folder, JobLimits limits)
    : program_(std::move(program)), folder_(std::move(folder)), limits_(limits) {
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
    if (kept.is_object() && kept.contains("id") && kept.contains("created"))
      earlier_.push_back(std::move(kept));
    if (earlier_.size() >= limits_.kept) break;
  }
  std::sort(earlier_.begin(), earlier_.end(),
            [](const ordered_json& a, const ordered_json& b) { return a["created"] > b["created"]; });
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
    jobs_.push_back(std::move(job));
  }
  changed();
  return id;
}

bool JobQueue::cancel(const std::string& id) {
  bool done = false;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& job : jobs_)
      if (job->id == id && (job->state == "waiting" || job->state == "running")) {
        job->cancel_asked = done = true;
        if (job->state != "waiting") break;
        job->state = "cancelled";
        job->ended = clock_seconds();
      }
  }
  if (done) changed();
  return done;
}

void JobQueue::work() {
  while (true) {
    Job* next = nullptr;
    {
      std::unique_lock lock(mutex_);
      news_.wait(lock, [&] {
        for (const auto& job : jobs_)
          if (job->state == "waiting") {
            next = job.get();
            return true;
          }
        return stop_;
      });
      if (stop_) return;
      next->state = "running";
      next->started = clock_seconds();
    }
    changed();
    run(*next);
    keep(*next);
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
    const std::lock_guard lock(mutex_);
    job.state = state;
    job.ended = clock_seconds();
    job.process = 0;
  };
  Child child;
  try {
    child = start_child(program_, job.words, limits_.memory_bytes);
  } catch (const Error& error) {
    take_line(job, error.what());
    return finish("failed");
  }
  {
    const std::lock_guard lock(mutex_);
    job.process = child.process;
  }
  std::string pending;
  bool killed = false, open = true;
  const double deadline = clock_seconds() + limits_.seconds;
  while (open) {
    pollfd ready{child.output, POLLIN, 0};
    ::poll(&ready, 1, 200);
    bool cancelled;
    {
      const std::lock_guard lock(mutex_);
      cancelled = job.cancel_asked;
    }
    if (!killed && (cancelled || clock_seconds() > deadline)) {
      ::kill(-child.process, SIGKILL);
      killed = true;
      if (!cancelled)
        take_line(job, fmt::format("[job] stopped: it took longer than {:.0f} s", limits_.seconds));
    }
    if ((ready.revents & (POLLIN | POLLHUP)) == 0) {
      // The child may be gone while something that it started still holds the pipe.
      if (killed) break;
      continue;
    }
    char buffer[4096];
    const ssize_t count = ::read(child.output, buffer, sizeof buffer);
    if (count <= 0) {
      open = count < 0 && errno == EINTR;
      continue;
    }
    for (ssize_t i = 0; i < count; ++i) {
      if (buffer[i] != '\n' && buffer[i] != '\r') {
        if (pending.size() < kLongestLine) pending += buffer[i];
      } else if (!pending.empty()) {
        take_line(job, pending);
        pending.clear();
      }
    }
    changed();
  }
  if (!pending.empty()) take_line(job, pending);
  ::close(child.output);
  int status = 0;
  while (::waitpid(child.process, &status, 0) < 0 && errno == EINTR) {
  }
  bool cancelled;
  {
    const std::lock_guard lock(mutex_);
    cancelled = job.cancel_asked;
  }
  if (!cancelled && WIFSIGNALED(status) && !killed)
    take_line(job,
              fmt::format("[job] ended by signal {}: {}", WTERMSIG(status), ::strsignal(WTERMSIG(status))));
  finish(cancelled ? "cancelled" : WIFEXITED(status) && WEXITSTATUS(status) == 0 ? "done" : "failed");
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
  for (auto job = jobs_.rbegin(); job != jobs_.rend() && list.size() < limits_.kept; ++job)
    list.push_back(json(**job));
  for (const ordered_json& kept : earlier_)
    if (list.size() < limits_.kept) list.push_back(kept);
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

// What the playground makes. A job is the program itself once more, in a process of its own: it can be
// cancelled at any moment, its memory goes back when it ends, what it does wrong stays its own, and its
// command line is what a person would type. One runs at a time; the others wait.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

namespace melete {

struct JobLimits {
  size_t waiting = 20;       // more are refused
  double seconds = 1800;     // of one job
  int64_t memory_bytes = 0;  // that one may have; 0: no limit
  size_t kept = 500;         // finished ones that are listed
};

struct JobRequest {
  std::string tool;                 // name of the generator, for people
  nlohmann::ordered_json settings;  // as they were asked for, for people
  std::vector<std::string> words;   // after the program's name, without -o
  std::string extension;            // of the file to write; empty: the job writes into its folder
};

class JobQueue {
 public:
  // Results are kept below `folder`, a folder for each job. `program`: what is started.
  JobQueue(std::string program, std::filesystem::path folder, JobLimits limits);
  ~JobQueue();  // cancels what runs
  JobQueue(const JobQueue&) = delete;
  JobQueue& operator=(const JobQueue&) = delete;

  std::string add(const JobRequest& request);               // id; an Error where too many wait
  bool cancel(const std::string& id);                       // false: there is no such job, or it is over
  nlohmann::ordered_json job(const std::string& id) const;  // null: unknown
  nlohmann::ordered_json all() const;                       // newest first
  // Waits until the job is over; false when that took longer.
  bool wait_for(const std::string& id, double seconds) const;
  std::filesystem::path folder_of(const std::string& id) const { return folder_ / id; }

  std::function<void()> on_change;  // called without a lock held

 private:
  struct Job {
    std::string id;
    JobRequest request;
    std::vector<std::string> words;  // all of them
    std::string state = "waiting";   // running, done, failed, cancelled
    std::string part, last_line;
    std::deque<std::string> lines;  // the last that it printed
    double share = 0, created = 0, started = 0, ended = 0;
    bool cancel_asked = false;
    pid_t process = 0;
  };

  void work();
  void run(Job& job);
  void take_line(Job& job, const std::string& line);
  void keep(const Job& job) const;
  void read_kept();
  nlohmann::ordered_json json(const Job& job) const;
  void changed() const;

  std::string program_;
  std::filesystem::path folder_;
  JobLimits limits_;
  mutable std::mutex mutex_;
  mutable std::condition_variable news_;
  std::deque<std::unique_ptr<Job>> jobs_;        // of this session, oldest first
  std::vector<nlohmann::ordered_json> earlier_;  // of sessions before, newest first
  bool stop_ = false;
  int64_t made_ = 0;
  std::thread thread_;
};

// As a person would type it in a shell.
std::string shell_line(const std::vector<std::string>& words);

}  // namespace melete

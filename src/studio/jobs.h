// What the playground makes. A job is the program itself once more, in a process of its own: it can be
// cancelled at any moment, what it does wrong stays its own, and its command line is what a person would
// type. One runs at a time; the others wait. Where models are to be kept, the process stays: it reads jobs as
// lines (`melete studio work`) and has its models in memory when the next one comes.
#pragma once

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

#include "studio/child.h"

namespace melete {

struct JobLimits {
  size_t waiting = 20;                      // more are refused
  double seconds = 1800;                    // of one job
  int64_t memory_bytes = 0;                 // that one may have; 0: no limit
  size_t kept = 500;                        // finished ones; older ones are removed with what they made
  uintmax_t kept_on_disk = 20'000'000'000;  // bytes that these may take
  int64_t kept_models = 0;                  // in memory between jobs; 0: a process for every job
  int64_t kept_bytes = 0;                   // of all of them; 0: no limit
  double kept_seconds = 600;                // without a job, then they go
};

struct JobRequest {
  std::string tool;                 // name of the generator, for people
  nlohmann::ordered_json settings;  // as they were asked for, for people
  std::vector<std::string> words;   // after the program's name, without -o
  std::string extension;            // of the file to write; empty: the job writes into its folder
  bool streams = false;             // its sound is wanted while it is made, in live_path()
  std::vector<std::pair<std::string, std::string>> files = {};  // setting and file that it writes there, too
};

class JobQueue {
 public:
  // Results are kept below `folder`, a folder for each job. `program`: what is started.
  JobQueue(std::string program, std::filesystem::path folder, JobLimits limits);
  ~JobQueue();  // cancels what runs
  JobQueue(const JobQueue&) = delete;
  JobQueue& operator=(const JobQueue&) = delete;

  std::string add(const JobRequest& request);               // id; an Error where too many wait
  bool cancel(const std::string& id);                       // one that is over stays as it is; false: there is no such job
  nlohmann::ordered_json job(const std::string& id) const;  // null: unknown
  nlohmann::ordered_json all() const;                       // newest first
  // Waits until the job is over; false when that took longer.
  bool wait_for(const std::string& id, double seconds) const;
  std::filesystem::path folder_of(const std::string& id) const { return folder_ / id; }
  // A wave file that grows while a job that streams goes on, and is gone afterwards.
  std::filesystem::path live_path(const std::string& id) const { return folder_ / id / ".live.wav"; }
  nlohmann::ordered_json kept() const;  // models in memory: [{"kind", "path", "bytes"}]
  void forget_kept();                   // when no job runs any more

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
  };

  void work();
  void run(Job& job);
  void end_process();
  void take_line(Job& job, const std::string& line);
  void keep(const Job& job) const;
  void read_kept();
  void clear_old();
  nlohmann::ordered_json json(const Job& job) const;
  void changed() const;

  std::string program_;
  std::filesystem::path folder_;
  JobLimits limits_;
  mutable std::mutex mutex_;
  mutable std::condition_variable news_;
  std::deque<std::unique_ptr<Job>> jobs_;        // of this session, oldest first
  std::vector<nlohmann::ordered_json> earlier_;  // of sessions before, newest first
  nlohmann::ordered_json kept_ = nlohmann::ordered_json::array();
  std::unique_ptr<Child> process_;  // of the thread
  bool stop_ = false, forget_ = false;
  int64_t made_ = 0;
  std::thread thread_;
};

}  // namespace melete

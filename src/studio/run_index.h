// All runs below a folder, found and followed by looking at files alone: also those that another machine
// writes to a shared folder. One thread looks; any number ask.
#pragma once

#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "studio/run_metrics.h"

namespace melete {

class RunIndex {
 public:
  explicit RunIndex(std::filesystem::path root);  // a real path
  ~RunIndex();
  RunIndex(const RunIndex&) = delete;
  RunIndex& operator=(const RunIndex&) = delete;

  const std::filesystem::path& root() const { return root_; }
  void follow();  // starts the thread that looks every half second; without it, look() does it once
  void look();    // finds runs and reads everything that is new

  std::vector<std::string> ids() const;  // paths below the root; "." is the root itself
  bool has(const std::string& id) const;
  nlohmann::ordered_json summary(const std::string& id) const;  // null for an unknown id
  nlohmann::ordered_json summaries() const;                     // of all
  nlohmann::ordered_json details(
      const std::string& id) const;  // settings, names of curves, texts, checkpoints
  // The newest run of a task; empty where there is none.
  std::string newest_of_task(const std::string& task) const;
  // Calls with the run's metrics while nobody changes them; false for an unknown id.
  bool read(const std::string& id, const std::function<void(const RunMetrics&)>& use) const;

  // For pages that are told: waits until something is newer than `seen` or so many milliseconds have gone.
  // Returns the version now; changed() says what has changed since another.
  uint64_t wait(uint64_t seen, int64_t milliseconds) const;
  nlohmann::ordered_json changed(uint64_t since) const;  // {"runs": [summaries], "ids": [all]}
  void wake();                                           // wait() returns at once from now on

 private:
  struct Run {
    std::filesystem::path folder;
    RunMetrics metrics;
    uint64_t version = 0;
    std::string state;  // as it was last told
  };

  void find_runs();
  bool read_new();  // true while there is more
  nlohmann::ordered_json summary_of(const std::string& id, const Run& run) const;

  std::filesystem::path root_;
  mutable std::mutex mutex_;
  mutable std::condition_variable news_;
  std::map<std::string, std::unique_ptr<Run>> runs_;
  uint64_t version_ = 1, ids_version_ = 1;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

// running, finished, failed, stopped or silent (no word for long, and no last one). now: by this machine's
// clock; that of the machine that trains may be another.
std::string run_state(const RunProgress& progress, double now);

}  // namespace melete

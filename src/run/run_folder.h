// What a run leaves behind, in one folder:
//   config.json  config.toml  metrics.jsonl  events.out.tfevents.*  checkpoints/step_00001000.safetensors
//   samples/step_00001000/*.flac  pictures/step_00001000/*.png
// A run never asks and never deletes another run.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "run/checkpoint.h"

namespace melete {

enum class StartMode {
  new_run,  // refuses a folder that has a run in it
  resume,   // refuses a folder that has none
  fresh,    // moves an old run aside (name.old-1, name.old-2, ...), then starts
};

// Which checkpoints stay: the last `last`, and every one whose step is a multiple of `every` (0: none
// besides).
struct KeepRule {
  int64_t last = 3;
  int64_t every = 0;
};

struct CheckpointEntry {
  std::string path;
  int64_t step = -1;    // from inside the file, never from its name; -1 when it cannot be read
  std::string problem;  // why it cannot be read, empty when its header is sound
};

struct FoundCheckpoint {
  std::string path;
  Checkpoint checkpoint;
};

using Warn = std::function<void(const std::string&)>;

std::string step_name(int64_t step);  // "step_00001000"

// For readers (generate, inspect, the live page): no lock is taken and nothing is changed.
bool has_run(const std::string& folder);
std::vector<CheckpointEntry> list_checkpoints(
    const std::string& run_folder);  // newest first, unreadable ones last
// The newest one that loads and passes its checksum; broken ones are named through `warn`.
std::optional<FoundCheckpoint> latest_usable(const std::string& run_folder, const Warn& warn);

// The writer's side. Held by one process (rank 0) at a time: a second one is refused.
class RunFolder {
 public:
  RunFolder(const std::string& path, StartMode mode);
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  const std::string& path() const { return path_; }
  const std::string& moved_aside() const {
    return moved_aside_;
  }  // where fresh put the old run; empty if nowhere
  std::string metrics_path() const;
  std::string checkpoint_path(int64_t step) const;
  std::string samples_path(int64_t step) const;  // folders; made when first written to
  std::string pictures_path(int64_t step) const;

  void write_config(const nlohmann::ordered_json& config, const std::string& toml_text = "");
  // Writes the checkpoint under its step's name, then removes the ones that the rule does not keep. Returns
  // its path.
  std::string save(const Checkpoint& checkpoint, const KeepRule& keep);

  std::vector<CheckpointEntry> checkpoints() const { return list_checkpoints(path_); }
  std::optional<FoundCheckpoint> latest_usable(const Warn& warn) const {
    return melete::latest_usable(path_, warn);
  }

  // On resume: rows of metrics.jsonl after `step` tell of steps that were lost, and a half-written last row
  // of nothing; both go. Returns how many.
  int64_t truncate_metrics(int64_t step);

 private:
  void lock();
  void unlock();

  std::string path_, moved_aside_;
  int lock_ = -1;
};

}  // namespace melete

#include "run/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "core/base/error.h"
#include "io/base/atomic_file.h"

namespace melete {

namespace fs = std::filesystem;

namespace {

using nlohmann::ordered_json;

constexpr const char* kLockName = ".lock";

fs::path checkpoints_folder(const std::string& run) {
  return fs::path(run) / "checkpoints";
}

bool holds_files(const fs::path& folder) {
  std::error_code error;
  for (const auto& entry : fs::recursive_directory_iterator(folder, error))
    if (entry.is_regular_file(error) && !entry.path().filename().string().starts_with('.')) return true;
  return false;
}

void make_folder(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  require(!error && fs::is_directory(path), "[run {}] the folder cannot be made: {}; try another --out", path,
          error ? error.message() : "something that is not a folder is in the way");
}

}  // namespace

std::string step_name(int64_t step) {
  return fmt::format("step_{:08}", step);
}

// A folder in which a start failed before its first step holds only a configuration: nothing there can be
// lost.
bool has_run(const std::string& folder) {
  std::error_code error;
  const uintmax_t metrics_bytes = fs::file_size(fs::path(folder) / "metrics.jsonl", error);
  if (!error && metrics_bytes > 0) return true;
  for (const char* part : {"checkpoints", "samples", "pictures"})
    if (holds_files(fs::path(folder) / part)) return true;
  return false;
}

std::vector<CheckpointEntry> list_checkpoints(const std::string& run_folder) {
  std::vector<CheckpointEntry> found;
  std::error_code error;
  for (const auto& file : fs::directory_iterator(checkpoints_folder(run_folder), error)) {
    const fs::path& path = file.path();
    if (path.extension() != ".safetensors" || path.filename().string().starts_with('.')) continue;
    CheckpointEntry entry{path.string(), -1, ""};
    try {
      entry.step = read_checkpoint_meta(entry.path)["step"].get<int64_t>();
    } catch (const std::exception& reason) {
      entry.problem = reason.what();
    }
    found.push_back(std::move(entry));
  }
  std::sort(found.begin(), found.end(), [](const CheckpointEntry& a, const CheckpointEntry& b) {
    return a.step != b.step ? a.step > b.step : a.path > b.path;
  });
  return found;
}

std::optional<FoundCheckpoint> latest_usable(const std::string& run_folder, const Warn& warn) {
  const std::vector<CheckpointEntry> entries = list_checkpoints(run_folder);
  for (const CheckpointEntry& entry : entries)
    if (!entry.problem.empty() && warn) warn("checkpoint left out: " + entry.problem);
  for (const CheckpointEntry& entry : entries) {
    if (!entry.problem.empty()) continue;
    try {
      return FoundCheckpoint{entry.path, load_checkpoint(entry.path)};
    } catch (const std::exception& reason) {
      if (warn) warn(std::string("checkpoint left out: ") + reason.what());
    }
  }
  return std::nullopt;
}

RunFolder::RunFolder(const std::string& path, StartMode mode) : path_(path) {
  while (path_.size() > 1 && path_.ends_with('/')) path_.pop_back();
  require(!path_.empty(), "[run] expected the name of a folder, got an empty one; try --out runs/name");
  if (mode == StartMode::resume)
    require(has_run(path_) || fs::exists(fs::path(path_) / "config.json"),
            "[run {}] there is no run here to resume; try without --resume, or check the name", path_);
  if (mode == StartMode::new_run)
    require(!has_run(path_),
            "[run {}] a run is already in this folder; try --resume to go on with it, or --fresh to move it "
            "aside and "
            "start over",
            path_);
  make_folder(path_);
  lock();
  if (mode == StartMode::new_run && has_run(path_)) {  // someone was quicker between the look and the lock
    unlock();
    fail("[run {}] a run has just been started in this folder; try --resume or another --out", path_);
  }
  if (mode == StartMode::fresh && has_run(path_)) {
    std::error_code error;
    for (int number = 1; moved_aside_.empty(); ++number) {
      const std::string aside = fmt::format("{}.old-{}", path_, number);
      if (fs::exists(fs::symlink_status(aside))) continue;
      fs::rename(path_, aside, error);
      if (error) {
        unlock();
        fail("[run {}] the old run cannot be moved aside to {}: {}", path_, aside, error.message());
      }
      moved_aside_ = aside;
    }
    unlock();  // the old lock went along with the old run
    make_folder(path_);
    lock();
  }
  try {
    make_folder(checkpoints_folder(path_).string());
  } catch (...) {
    unlock();
    throw;
  }
  remove_stale_temporaries(path_);
  remove_stale_temporaries(checkpoints_folder(path_).string());
  for (const char* part : {"samples", "pictures"}) {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(fs::path(path_) / part, error))
      if (entry.is_directory(error)) remove_stale_temporaries(entry.path().string());
  }
}

RunFolder::~RunFolder() {
  unlock();
}

void RunFolder::lock() {
  const std::string name = (fs::path(path_) / kLockName).string();
  for (int attempt = 0; attempt < 10; ++attempt) {
    lock_ = ::open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    require(lock_ >= 0, "[run {}] its lock file cannot be made: {}", path_, std::strerror(errno));
    if (::flock(lock_, LOCK_EX | LOCK_NB) != 0) {
      const int reason = errno;
      char owner[64] = {};
      const ssize_t count = ::pread(lock_, owner, sizeof owner - 1, 0);
      unlock();
      require(reason == EWOULDBLOCK, "[run {}] its lock file cannot be locked: {}", path_,
              std::strerror(reason));
      const std::string who(owner, static_cast<size_t>(std::max<ssize_t>(count, 0)));
      fail("[run {}] another process{} is writing this run; try another --out, or stop that process first",
           path_, who.empty() ? "" : " (number " + who.substr(0, who.find('\n')) + ")");
    }
    // The folder may have been moved aside between opening and locking: then this lock guards the wrong one.
    struct stat held, named;
    if (::fstat(lock_, &held) == 0 && ::stat(name.c_str(), &named) == 0 && held.st_ino == named.st_ino &&
        held.st_dev == named.st_dev) {
      const std::string me = std::to_string(::getpid()) + "\n";
      if (::ftruncate(lock_, 0) != 0 || ::pwrite(lock_, me.data(), me.size(), 0) < 0) {
        // Only the message for a second process would be poorer; on a full disk the first write will tell.
      }
      return;
    }
    unlock();
    make_folder(path_);
  }
  fail("[run {}] the folder keeps being moved away by another process; try again", path_);
}

void RunFolder::unlock() {
  if (lock_ >= 0) ::close(lock_);
  lock_ = -1;
}

std::string RunFolder::metrics_path() const {
  return path_ + "/metrics.jsonl";
}

std::string RunFolder::checkpoint_path(int64_t step) const {
  return (checkpoints_folder(path_) / (step_name(step) + ".safetensors")).string();
}

std::string RunFolder::samples_path(int64_t step) const {
  return path_ + "/samples/" + step_name(step);
}

std::string RunFolder::pictures_path(int64_t step) const {
  return path_ + "/pictures/" + step_name(step);
}

void RunFolder::write_config(const ordered_json& config, const std::string& toml_text) {
  write_file_atomically(path_ + "/config.json", config.dump(2) + "\n");
  if (!toml_text.empty()) write_file_atomically(path_ + "/config.toml", toml_text);
}

std::string RunFolder::save(const Checkpoint& checkpoint, const KeepRule& keep) {
  const std::string path = checkpoint_path(checkpoint.step());
  make_folder(checkpoints_folder(path_).string());
  save_checkpoint(path, checkpoint);
  // Only now, with the new one safely on disk, may older ones go. Ones that cannot be read are left to a
  // person.
  int64_t newest = 0;
  for (const CheckpointEntry& entry : checkpoints()) {
    if (!entry.problem.empty() || entry.path == path) continue;
    if (entry.step > checkpoint.step())
      continue;  // of a future that this run went back from; not ours to judge
    const bool recent = ++newest < std::max<int64_t>(keep.last, 1);
    const bool milestone = keep.every > 0 && entry.step % keep.every == 0;
    std::error_code ignored;
    if (!recent && !milestone) fs::remove(entry.path, ignored);
  }
  return path;
}

int64_t RunFolder::truncate_metrics(int64_t step) {
  std::ifstream in(metrics_path(), std::ios::binary);
  if (!in) return 0;
  AtomicFile out(metrics_path());
  int64_t dropped = 0;
  bool lost = false;  // rows without a step of their own belong to the rows around them
  for (std::string line; std::getline(in, line);) {
    const ordered_json row = ordered_json::parse(line, nullptr, false);
    bool keep = row.is_object() && !in.eof();  // eof: the last row has no line end, so its write was cut
    if (keep && row.contains("step") && row["step"].is_number_integer())
      lost = row["step"].get<int64_t>() > step;
    keep = keep && !lost;
    if (keep) {
      line += '\n';
      out.write(line);
    } else {
      ++dropped;
    }
  }
  in.close();
  if (dropped > 0) out.commit();
  return dropped;
}

}  // namespace melete

#include "data/unreadable_files.h"

#include <algorithm>

#include "core/base/error.h"

namespace melete {

namespace {

// Failures are judged against at least this many files, so that one bad file met first does not stop a run.
constexpr int64_t kFewestToJudge = 50;
// Random replacements before going through all files in order.
constexpr int64_t kRandomReplacements = 8;

}  // namespace

UnreadableFiles::UnreadableFiles(int64_t files, double max_failed_share, std::string kind, std::string hint,
                                 Tell tell)
    : files_(files),
      max_failed_share_(max_failed_share),
      kind_(std::move(kind)),
      hint_(std::move(hint)),
      tell_(std::move(tell)) {}

Item UnreadableFiles::draw(uint64_t seed, std::string_view purpose, uint64_t epoch, int64_t index,
                           const std::function<Item(int64_t file, Rng& rng)>& read) {
  require(index >= 0 && index < files_, "[data] expected an index in 0..{}, got {}", files_ - 1, index);
  const auto slot = static_cast<uint64_t>(index);
  for (int64_t attempt = 0; attempt <= kRandomReplacements + files_; ++attempt) {
    Rng rng(random_key(seed, purpose, {epoch, slot, static_cast<uint64_t>(attempt)}));
    int64_t file = index;
    if (attempt > 0) file = rng.integer(0, files_);
    if (attempt > kRandomReplacements) file = (index + attempt - kRandomReplacements) % files_;
    try {
      Item item = read(file, rng);
      note_tried(file);
      return item;
    } catch (const Error& error) {
      note_failure(file, error.what());
    }
  }
  fail("[data] expected readable {}, got none in {} files{}", kind_, files_, hint_);
}

void UnreadableFiles::note_tried(int64_t file) {
  const std::lock_guard lock(mutex_);
  tried_.insert(file);
}

void UnreadableFiles::note_failure(int64_t file, const std::string& message) {
  bool first_time = false;
  int64_t failed = 0, tried = 0;
  {
    const std::lock_guard lock(mutex_);
    tried_.insert(file);
    first_time = failed_.insert(file).second;
    failed = static_cast<int64_t>(failed_.size());
    tried = static_cast<int64_t>(tried_.size());
  }
  if (first_time && tell_) {
    const std::lock_guard lock(tell_mutex_);
    tell_(file, message);
  }
  const int64_t judged = std::max(tried, std::min(files_, kFewestToJudge));
  require(static_cast<double>(failed) <= max_failed_share_ * static_cast<double>(judged),
          "[data] expected at most {:g} % unreadable {} (data.max_failed_share), got {} of {} tried, the "
          "last: {}{}",
          max_failed_share_ * 100, kind_, failed, tried, message, hint_);
}

int64_t UnreadableFiles::failed() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int64_t>(failed_.size());
}

int64_t UnreadableFiles::tried() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int64_t>(tried_.size());
}

}  // namespace melete

// Files of a collection that turn out not to be readable: each is told of once, another takes its place, and
// too many of them are an Error.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_set>

#include "core/base/random.h"
#include "data/batch.h"

namespace melete {

class UnreadableFiles {
 public:
  // Called once for every file that cannot be read, from whichever thread met it, one at a time.
  using Tell = std::function<void(int64_t file, const std::string& message)>;

  // kind: "recordings", for messages; hint: ends them
  UnreadableFiles(int64_t files, double max_failed_share, std::string kind, std::string hint, Tell tell);

  // What `read` makes of file number `index`, or of another one where that throws an Error: which one, and
  // the draws that `read` gets, are functions of (seed, purpose, epoch, index). Thread safe.
  Item draw(uint64_t seed, std::string_view purpose, uint64_t epoch, int64_t index,
            const std::function<Item(int64_t file, Rng& rng)>& read);

  int64_t failed() const;
  int64_t tried() const;

 private:
  void note_tried(int64_t file);
  void note_failure(int64_t file, const std::string& message);

  int64_t files_;
  double max_failed_share_;
  std::string kind_, hint_;
  Tell tell_;
  mutable std::mutex mutex_, tell_mutex_;
  std::unordered_set<int64_t> tried_, failed_;
};

}  // namespace melete

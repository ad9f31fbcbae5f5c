#include "run/kept_models.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <list>
#include <mutex>
#include <set>

#include "core/allocator.h"
#include "core/base/error.h"
#include "run/load_weights.h"

namespace melete {

namespace fs = std::filesystem;

namespace {

struct Entry {
  KeptModel about;
  std::string how, source;  // source: what the files were like
  std::any model;
  std::vector<TakenWeights> weights;  // that it was made of
  bool used = true;                   // by the job that is going on
};

struct Shelf {
  std::mutex mutex;
  KeptLimits limits;
  std::list<Entry> entries;  // used last, first
};

Shelf& shelf() {
  static Shelf* const one = new Shelf;  // tensors are not freed while the program ends
  return *one;
}

// What tells whether weights are still the same, without reading them: name, place on the disk, size and time
// of every file that a loader may choose from.
struct Source {
  std::string text;
  int64_t bytes = 0;  // of the largest

  void add(const fs::path& file) {
    struct stat status {};
    if (::stat(file.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return;
    text += fmt::format("{} {} {} {}.{:09}\n", file.string(), status.st_ino,
                        static_cast<int64_t>(status.st_size), static_cast<int64_t>(status.st_mtim.tv_sec),
                        static_cast<int64_t>(status.st_mtim.tv_nsec));
    bytes = std::max(bytes, static_cast<int64_t>(status.st_size));
  }
};

Source source_of(const std::string& path) {
  Source source;
  std::error_code error;
  const fs::path real = fs::canonical(path, error);
  if (error) return source;
  if (!fs::is_directory(real, error)) {
    source.add(real);
    return source;
  }
  // Of a run only its checkpoints count: the rest changes with every step.
  const fs::path inside = fs::is_directory(real / "checkpoints", error) ? real / "checkpoints" : real;
  std::set<fs::path> files;
  for (const auto& entry : fs::directory_iterator(inside, error))
    if (!entry.path().filename().string().starts_with('.')) files.insert(entry.path());
  for (const fs::path& file : files) source.add(file);
  return source;
}

}  // namespace

void keep_models(const KeptLimits& limits) {
  const std::lock_guard lock(shelf().mutex);
  shelf().limits = limits;
  if (limits.models == 0) shelf().entries.clear();
}

std::any kept_detail::kept_or_made(const std::string& kind, const std::string& path, const std::string& how,
                                   const std::function<std::any()>& make) {
  Shelf& all = shelf();
  const auto keeps = [&] {
    const std::lock_guard lock(all.mutex);
    return all.limits.models > 0;
  };
  if (!keeps()) return make();
  const Source source = source_of(path);
  const auto same = [&](const Entry& one) {
    return one.about.kind == kind && one.about.path == path && one.how == how;
  };
  {
    const std::lock_guard lock(all.mutex);
    const auto found = std::find_if(all.entries.begin(), all.entries.end(), same);
    if (found != all.entries.end() && found->source == source.text) {
      found->used = true;
      all.entries.splice(all.entries.begin(), all.entries, found);
      for (const TakenWeights& taken : found->weights) tell_weights(taken);
      return found->model;
    }
    // Room for the new one first.
    std::erase_if(all.entries,
                  [&](const Entry& one) { return same(one) || (one.about.kind == kind && !one.used); });
  }
  const int64_t before = tensor_memory().live_bytes;
  Entry entry;
  {
    const WeightsListener listener([&](const TakenWeights& taken) { entry.weights.push_back(taken); });
    entry.model = make();
  }
  entry.about = {kind, path, 0};
  entry.how = how;
  entry.source = source.text;
  entry.about.bytes = tensor_memory().live_bytes - before;
  if (entry.about.bytes <= 0) entry.about.bytes = source.bytes;
  const std::lock_guard lock(all.mutex);
  all.entries.push_front(std::move(entry));
  return all.entries.front().model;
}

void end_job_of_kept_models() {
  Shelf& all = shelf();
  const std::lock_guard lock(all.mutex);
  const auto bytes = [&] {
    int64_t sum = 0;
    for (const Entry& entry : all.entries) sum += entry.about.bytes;
    return sum;
  };
  while (!all.entries.empty() && (static_cast<int64_t>(all.entries.size()) > all.limits.models ||
                                  (all.limits.bytes > 0 && bytes() > all.limits.bytes)))
    all.entries.pop_back();
  for (Entry& entry : all.entries) entry.used = false;
  release_cached_memory();
}

std::vector<KeptModel> kept_models() {
  const std::lock_guard lock(shelf().mutex);
  std::vector<KeptModel> list;
  for (const Entry& entry : shelf().entries) list.push_back(entry.about);
  return list;
}

}  // namespace melete

#include "studio/kept_folder.h"

#include <algorithm>

namespace melete {

namespace fs = std::filesystem;

namespace {

uintmax_t bytes_below(const fs::path& path) {
  std::error_code error;
  if (!fs::is_directory(fs::symlink_status(path, error))) {
    const uintmax_t bytes = fs::file_size(path, error);
    return error ? 0 : bytes;
  }
  uintmax_t bytes = 0;
  for (const auto& entry : fs::recursive_directory_iterator(path, error))
    if (entry.is_regular_file(error)) {
      const uintmax_t more = entry.file_size(error);
      if (!error) bytes += more;
    }
  return bytes;
}

}  // namespace

std::vector<std::string> clear_oldest(const fs::path& folder, size_t most, uintmax_t most_bytes,
                                      const std::function<bool(const std::string& name)>& spared) {
  struct Entry {
    fs::path path;
    fs::file_time_type changed;
  };
  std::vector<Entry> entries;
  std::error_code error;
  for (const auto& one : fs::directory_iterator(folder, error)) {
    const std::string name = one.path().filename().string();
    if (!name.starts_with('.') && !(spared && spared(name)))
      entries.push_back({one.path(), one.last_write_time(error)});
  }
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.changed > b.changed; });
  std::vector<std::string> gone;
  uintmax_t bytes = 0;
  for (size_t i = 0; i < entries.size(); ++i) {
    bytes += bytes_below(entries[i].path);
    if (i == 0 || (i < most && bytes <= most_bytes)) continue;
    fs::remove_all(entries[i].path, error);
    gone.push_back(entries[i].path.filename().string());
  }
  return gone;
}

}  // namespace melete

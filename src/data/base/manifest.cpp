#include "data/base/manifest.h"

#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "core/base/error.h"
#include "data/base/transcripts.h"
#include "io/base/atomic_file.h"
#include "io/base/audio_file.h"

namespace melete {

namespace fs = std::filesystem;

namespace {

// A line holds one recording and its words; anything longer is not a manifest.
constexpr size_t kMostLineBytes = 1 << 20;

using Visited = std::set<std::pair<dev_t, ino_t>>;

// Every regular file below a folder. Links to folders are followed, each folder is entered once, so that a
// link back up does not go round for ever. Hidden names are left out (".git", macOS's "._take1.wav").
void walk(const fs::path& folder, Visited& visited, std::vector<std::string>& files,
          std::vector<SkippedFile>& skipped) {
  struct stat status {};
  if (::stat(folder.c_str(), &status) != 0 || !visited.emplace(status.st_dev, status.st_ino).second) return;
  std::error_code error;
  fs::directory_iterator iterator(folder, error);
  if (error) {
    skipped.push_back({folder.string(), "cannot open this folder: " + error.message()});
    return;
  }
  std::vector<fs::path> folders;
  for (const fs::directory_iterator end; !error && iterator != end; iterator.increment(error)) {
    const fs::path path = iterator->path();
    if (path.filename().string().starts_with(".")) continue;
    std::error_code kind_error;
    const fs::file_status kind = fs::status(path, kind_error);
    if (fs::is_directory(kind)) {
      folders.push_back(path);
    } else if (fs::is_regular_file(kind)) {
      files.push_back(path.string());
    } else if (is_audio_extension(path.string())) {
      skipped.push_back({path.string(), fs::exists(kind) ? "not a regular file" : "a link to nothing"});
    }
  }
  if (error) skipped.push_back({folder.string(), "cannot list all of this folder: " + error.message()});
  std::sort(folders.begin(), folders.end());
  for (const fs::path& child : folders) walk(child, visited, files, skipped);
}

// The path a reader would need from the manifest's folder; absolute when it lies elsewhere.
std::string path_in_manifest(const std::string& path, const fs::path& folder) {
  const fs::path absolute = fs::absolute(path).lexically_normal();
  const fs::path relative = absolute.lexically_relative(folder);
  const bool below = !relative.empty() && *relative.begin() != "..";
  return (below ? relative : absolute).string();
}

nlohmann::ordered_json to_json(const ManifestEntry& entry, const fs::path& folder) {
  nlohmann::ordered_json json;
  json["path"] = path_in_manifest(entry.path, folder);
  json["duration_seconds"] = entry.duration_seconds;
  json["frames"] = entry.frames;
  json["rate_hz"] = entry.rate_hz;
  json["channels"] = entry.channels;
  if (!entry.text.empty()) json["text"] = entry.text;
  if (!entry.tags.empty()) json["tags"] = entry.tags;
  return json;
}

// What a line must be; every message begins with "manifest:line".
class LineReader {
 public:
  LineReader(std::string where, const std::string& line) : where_(std::move(where)) {
    // A callback that refuses depth: the parser recurses, and a line of a million brackets would end the
    // process.
    const auto shallow = [this](int depth, nlohmann::json::parse_event_t, nlohmann::json&) {
      require(depth <= 4, "[manifest] {}: expected a flat JSON object, got one nested more than 4 deep",
              where_);
      return true;
    };
    try {
      json_ = nlohmann::json::parse(line, shallow);
    } catch (const nlohmann::json::exception& error) {
      fail("[manifest] {}: expected a JSON object, got something else ({}); try `melete data index` again",
           where_, error.what());
    }
    require(json_.is_object(), "[manifest] {}: expected a JSON object, got {}", where_, json_.type_name());
  }

  std::string string(const char* key, bool required) const {
    const auto found = json_.find(key);
    if (found == json_.end() || (found->is_null() && !required)) {
      require(!required, "[manifest] {}: expected a key \"{}\", got none", where_, key);
      return {};
    }
    require(found->is_string(), "[manifest] {}: expected \"{}\" to be a string, got {}", where_, key,
            found->type_name());
    return found->get<std::string>();
  }

  // One a line where they go through a batch, so none holds a line break.
  std::vector<std::string> tags(const char* key) const {
    const auto found = json_.find(key);
    if (found == json_.end() || found->is_null()) return {};
    require(found->is_array(), "[manifest] {}: expected \"{}\" to be a list of strings, got {}", where_, key,
            found->type_name());
    std::vector<std::string> list;
    for (const auto& tag : *found) {
      require(tag.is_string() && !tag.get_ref<const std::string&>().empty() &&
                  tag.get_ref<const std::string&>().find('\n') == std::string::npos,
              "[manifest] {}: expected \"{}\" to hold strings of one line, got {}", where_, key,
              tag.type_name());
      list.push_back(tag.get<std::string>());
    }
    return list;
  }

  int64_t integer(const char* key, int64_t low, int64_t high) const {
    const auto found = json_.find(key);
    require(found != json_.end(), "[manifest] {}: expected a key \"{}\", got none", where_, key);
    const bool fits = found->is_number_unsigned() ? found->get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX)
                      : found->is_number_integer() ? true
                                                   : false;
    require(fits, "[manifest] {}: expected \"{}\" to be an integer, got {}", where_, key,
            found->dump().substr(0, 40));
    const int64_t value = found->get<int64_t>();
    require(value >= low && value <= high, "[manifest] {}: expected \"{}\" between {} and {}, got {}", where_,
            key, low, high, value);
    return value;
  }

  double number(const char* key) const {
    const auto found = json_.find(key);
    require(found != json_.end(), "[manifest] {}: expected a key \"{}\", got none", where_, key);
    require(found->is_number(), "[manifest] {}: expected \"{}\" to be a number, got {}", where_, key,
            found->type_name());
    const double value = found->get<double>();
    require(std::isfinite(value) && value >= 0, "[manifest] {}: expected \"{}\" to be 0 or more, got {}",
            where_, key, value);
    return value;
  }

 private:
  std::string where_;
  nlohmann::json json_;
};

}  // namespace

void for_each_parallel(int64_t count, const std::function<void(int64_t)>& work,
                       const ProgressCallback& progress, int threads) {
  if (threads <= 0) threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  threads = static_cast<int>(std::min<int64_t>(threads, count));
  std::atomic<int64_t> next{0};
  std::atomic<bool> stop{false};
  std::mutex mutex;
  int64_t done = 0;
  std::exception_ptr failure;
  const auto worker = [&] {
    for (int64_t index = next++; index < count && !stop; index = next++) {
      try {
        work(index);
        const std::lock_guard lock(mutex);
        ++done;
        if (progress) progress(done, count);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!failure) failure = std::current_exception();
        stop = true;
      }
    }
  };
  {
    std::vector<std::jthread> pool;
    for (int i = 1; i < threads; ++i) pool.emplace_back(worker);
    worker();
  }
  if (failure) std::rethrow_exception(failure);
}

FolderIndex index_folder(const std::string& folder, const ProgressCallback& progress, int threads) {
  require(fs::is_directory(folder), "[data index] expected a folder, got {}", folder);
  FolderIndex index;
  std::vector<std::string> files;
  Visited visited;
  walk(fs::path(folder), visited, files, index.skipped);
  std::sort(files.begin(), files.end());

  const Transcripts transcripts(files);
  index.skipped.insert(index.skipped.end(), transcripts.skipped().begin(), transcripts.skipped().end());
  std::vector<std::string> recordings;
  for (const std::string& path : files) {
    if (is_audio_extension(path))
      recordings.push_back(path);
    else if (needs_ffmpeg(path))
      index.skipped.push_back({path, "needs ffmpeg, which is not installed; try: apt install ffmpeg, or " +
                                         ffmpeg_command(path)});
  }

  std::vector<ManifestEntry> probed(recordings.size());
  std::vector<std::string> reasons(recordings.size());
  const auto probe = [&](int64_t i) {
    const auto at = static_cast<size_t>(i);
    try {
      const AudioInfo info = probe_audio(recordings[at]);
      require(info.frames > 0, "[audio] {} holds no samples", recordings[at]);
      probed[at] = {recordings[at],
                    info.seconds(),
                    info.frames,
                    info.rate_hz,
                    info.channels,
                    transcripts.text_for(recordings[at]),
                    {}};
    } catch (const Error& error) {
      reasons[at] = error.what();
    }
  };
  for_each_parallel(static_cast<int64_t>(recordings.size()), probe, progress, threads);
  for (size_t i = 0; i < recordings.size(); ++i) {
    if (reasons[i].empty()) {
      index.entries.push_back(std::move(probed[i]));
    } else {
      index.skipped.push_back({recordings[i], reasons[i]});
    }
  }
  std::sort(index.skipped.begin(), index.skipped.end(),
            [](const SkippedFile& a, const SkippedFile& b) { return a.path < b.path; });
  return index;
}

std::string class_by_folder(const std::string& path, const std::string& top) {
  // "music/" and "music" are one place.
  fs::path whole = fs::path(top).lexically_normal();
  if (!whole.has_filename()) whole = whole.parent_path();
  const fs::path folder = fs::path(path).lexically_normal().parent_path();
  if (folder == whole) return {};
  std::string name = folder.filename().string();
  std::replace(name.begin(), name.end(), '_', ' ');
  return name;
}

void write_manifest(const std::string& path, const std::vector<ManifestEntry>& entries) {
  const fs::path folder = fs::absolute(path).lexically_normal().parent_path();
  std::string bytes;
  for (const ManifestEntry& entry : entries) {
    // File names are bytes; one that is not UTF-8 cannot be written as JSON and read back as the same name.
    try {
      bytes += to_json(entry, folder).dump() + "\n";
    } catch (const nlohmann::json::exception&) {
      fail("[manifest] the name or the text of {} is not UTF-8; try renaming it, or convert the text",
           entry.path);
    }
  }
  write_file_atomically(path, bytes);
}

std::vector<ManifestEntry> read_manifest(const std::string& path) {
  require(fs::is_regular_file(path), "[manifest] expected a manifest file, got {}; try `melete data index`",
          path);
  std::ifstream stream(path, std::ios::binary);
  require(stream.good(), "[manifest] cannot open {}: {}", path, std::strerror(errno));
  const fs::path folder = fs::path(path).parent_path();

  std::vector<ManifestEntry> entries;
  std::string line(kMostLineBytes + 2, '\0');
  for (int64_t number = 1;; ++number) {
    stream.getline(line.data(), static_cast<std::streamsize>(line.size()));
    const auto got = static_cast<size_t>(stream.gcount());
    const std::string where = fmt::format("{}:{}", path, number);
    if (got == 0 && stream.eof()) break;
    require(!stream.fail(), "[manifest] {}: expected a line of at most {} bytes, got more", where,
            kMostLineBytes);
    std::string text = line.substr(0, stream.eof() ? got : got - 1);
    while (!text.empty() && (text.back() == '\r' || text.back() == ' ')) text.pop_back();
    if (text.empty()) continue;

    const LineReader reader(where, text);
    ManifestEntry entry;
    const std::string name = reader.string("path", true);
    require(!name.empty() && name.find('\0') == std::string::npos,
            "[manifest] {}: expected \"path\" to be a file name, got an empty one or one with a zero byte",
            where);
    entry.path = (folder / name).lexically_normal().string();
    entry.duration_seconds = reader.number("duration_seconds");
    entry.frames = reader.integer("frames", 0, int64_t{1} << 50);
    entry.rate_hz = static_cast<int>(reader.integer("rate_hz", 1, 1'000'000));
    entry.channels = static_cast<int>(reader.integer("channels", 1, 64));
    entry.text = reader.string("text", false);
    entry.tags = reader.tags("tags");
    entries.push_back(std::move(entry));
  }
  return entries;
}

std::vector<ManifestEntry> load_entries(const std::string& folder_or_manifest,
                                        std::vector<SkippedFile>* skipped, const ProgressCallback& progress) {
  require(fs::exists(folder_or_manifest), "[data] expected a folder or a manifest, but {} does not exist",
          folder_or_manifest);
  if (!fs::is_directory(folder_or_manifest)) {
    require(!is_audio_extension(folder_or_manifest),
            "[data] expected a folder or a manifest, got the recording {}; try the folder it is in",
            folder_or_manifest);
    auto entries = read_manifest(folder_or_manifest);
    require(!entries.empty(), "[data] {} lists no recordings; try `melete data index DIR -o {}`",
            folder_or_manifest, folder_or_manifest);
    return entries;
  }
  FolderIndex index = index_folder(folder_or_manifest, progress);
  if (index.entries.empty() && !index.skipped.empty())
    fail("[data] none of the {} recordings in {} can be used; the first: {}: {}", index.skipped.size(),
         folder_or_manifest, index.skipped.front().path, index.skipped.front().reason);
  require(!index.entries.empty(), "[data] no recordings (wav, flac, mp3, ogg, opus, aiff) in {}",
          folder_or_manifest);
  if (skipped != nullptr) *skipped = std::move(index.skipped);
  return std::move(index.entries);
}

}  // namespace melete

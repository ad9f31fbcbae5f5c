// A manifest is a list of recordings, one JSON object a line, made once by `melete data index` and never
// scanned again: {"path": "a/b.flac", "duration_seconds": 3.2, "frames": 76800, "rate_hz": 24000, "channels":
// 1, "text": "..", "tags": ["..", ".."]}
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace melete {

struct ManifestEntry {
  std::string path;  // ready to open: resolved against the manifest's own folder
  double duration_seconds = 0;
  int64_t frames = 0;  // samples per channel
  int rate_hz = 0;
  int channels = 0;
  std::string text;                    // empty when there is none
  std::vector<std::string> tags = {};  // names of what is heard: classes, instruments, genres

  bool operator==(const ManifestEntry&) const = default;
};

struct SkippedFile {
  std::string path;
  std::string reason;
};

struct FolderIndex {
  std::vector<ManifestEntry> entries;  // sorted by path
  std::vector<SkippedFile> skipped;    // sorted by path
};

// Called with (done, total), from one thread at a time.
using ProgressCallback = std::function<void(int64_t done, int64_t total)>;

// Finds and probes every recording below a folder. Text comes from a .txt beside the file, from LJSpeech's
// metadata.csv (the normalised column) or from LibriSpeech's *.trans.txt, in that order. threads 0: one per
// core.
FolderIndex index_folder(const std::string& folder, const ProgressCallback& progress = {}, int threads = 0);

// The name of the folder that a file lies in, "red_cars" as "red cars"; none right at the top.
std::string class_by_folder(const std::string& path, const std::string& top);

// Paths below the manifest's folder are written relative to it, so that the folder can be moved.
void write_manifest(const std::string& path, const std::vector<ManifestEntry>& entries);

// A line that is not right is refused with the manifest's name and the line number.
std::vector<ManifestEntry> read_manifest(const std::string& path);

// What a dataset takes: a folder (indexed now) or a manifest. An Error when there is nothing in it.
std::vector<ManifestEntry> load_entries(const std::string& folder_or_manifest,
                                        std::vector<SkippedFile>* skipped = nullptr,
                                        const ProgressCallback& progress = {});

// Runs work(0..count-1) on several threads; the first exception is thrown again here. threads 0: one per
// core.
void for_each_parallel(int64_t count, const std::function<void(int64_t)>& work,
                       const ProgressCallback& progress = {}, int threads = 0);

}  // namespace melete

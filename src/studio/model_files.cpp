#include "studio/model_files.h"

#include <algorithm>
#include <filesystem>

#include "io/base/safetensors.h"
#include "studio/run_files.h"
#include "studio/run_index.h"

namespace melete {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

namespace {

constexpr int kDeepestFile = 4;
constexpr size_t kMostModelFiles = 300, kMostCheckpoints = 1000;

void collect_files(const fs::path& folder, int depth, std::vector<fs::path>& found) {
  if (depth == 0 || is_run_folder(folder)) return;  // a run's own are known to it
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (found.size() >= kMostModelFiles) return;
    if (name.starts_with('.') || entry.is_symlink(error) || (depth == kDeepestFile && name == kStudioFolder))
      continue;
    if (entry.is_directory(error)) collect_files(entry.path(), depth - 1, found);
    if (entry.path().extension() == ".safetensors" && entry.is_regular_file(error))
      found.push_back(entry.path());
  }
}

}  // namespace

ordered_json checkpoint_meta(const fs::path& path) {
  try {
    const SafetensorsFile file(path.string());
    const auto text = file.metadata().find("melete.meta");
    if (text == file.metadata().end()) return nullptr;
    const auto meta = ordered_json::parse(text->second, nullptr, false);
    return meta.is_object() && meta.contains("task") ? meta : ordered_json();
  } catch (const std::exception&) {
    return nullptr;
  }
}

ordered_json model_files(const RunIndex& index) {
  auto list = ordered_json::array();
  const auto add = [&](const fs::path& path, const std::string& task, int64_t step, uintmax_t bytes,
                       const std::string& run) {
    list.push_back({{"path", path.lexically_relative(index.root()).generic_string()},
                    {"task", task},
                    {"step", step},
                    {"bytes", bytes},
                    {"run", run}});
  };
  std::vector<fs::path> files;
  collect_files(index.root(), kDeepestFile, files);
  std::sort(files.begin(), files.end());
  for (const fs::path& path : files) {
    std::error_code error;
    if (const ordered_json meta = checkpoint_meta(path); meta.is_object())
      add(path, meta.value("task", ""), meta.value("step", int64_t{0}), fs::file_size(path, error), "");
  }
  for (const std::string& id : index.ids()) {
    std::string task;
    index.read(id, [&](const RunMetrics& metrics) { task = metrics.progress().task; });
    const fs::path folder = id == "." ? index.root() : index.root() / id;
    for (const auto& one : run_checkpoints(folder)) {
      if (list.size() >= kMostCheckpoints) return list;
      add(folder / "checkpoints" / one["name"].get<std::string>(), task, one["step"], one["bytes"], id);
    }
  }
  return list;
}

}  // namespace melete

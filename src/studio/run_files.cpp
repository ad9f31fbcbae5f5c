#include "studio/run_files.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <map>
#include <sstream>
#include <vector>

namespace melete {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

namespace {

constexpr size_t kMostFiles = 20000, kMostTableRows = 500;
constexpr uintmax_t kLargestText = 4 << 20;

std::string read_small(const fs::path& path) {
  std::error_code error;
  const uintmax_t bytes = fs::file_size(path, error);
  if (error || bytes > kLargestText || !fs::is_regular_file(path, error)) return "";
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// The number in "step_00001000"; -1 where the name is another.
int64_t step_of(const std::string& name) {
  if (!name.starts_with("step_")) return -1;
  int64_t step = -1;
  const char* end = name.data() + name.size();
  const auto [rest, error] = std::from_chars(name.data() + 5, end, step);
  return error == std::errc() && (rest == end || *rest == '.') ? step : -1;
}

std::string kind_of(const fs::path& path) {
  const std::string type = content_type_of(path);
  if (type.starts_with("audio/")) return "audio";
  if (type.starts_with("image/")) return "picture";
  if (type.starts_with("text/plain")) return "text";
  return "";
}

}  // namespace

bool is_run_folder(const fs::path& folder) {
  std::error_code error;
  return fs::is_regular_file(folder / "metrics.jsonl", error) ||
         (fs::is_regular_file(folder / "config.json", error) &&
          fs::is_directory(folder / "checkpoints", error));
}

ordered_json run_config(const fs::path& run) {
  auto config = ordered_json::parse(read_small(run / "config.json"), nullptr, false);
  return config.is_discarded() ? ordered_json() : config;
}

ordered_json run_checkpoints(const fs::path& run) {
  std::vector<ordered_json> list;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(run / "checkpoints", error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with('.') || entry.path().extension() != ".safetensors") continue;
    list.push_back({{"name", name}, {"step", step_of(name)}, {"bytes", entry.file_size(error)}});
    if (list.size() >= kMostFiles) break;
  }
  std::sort(list.begin(), list.end(), [](const ordered_json& a, const ordered_json& b) {
    return a["step"].get<int64_t>() > b["step"].get<int64_t>();
  });
  return list;
}

std::vector<std::string> run_commands(const fs::path& run) {
  std::istringstream lines(read_small(run / "commands.txt"));
  std::vector<std::string> commands;
  for (std::string line; std::getline(lines, line);)
    if (!line.empty()) commands.push_back(line);
  return commands;
}

std::string newest_sample(const fs::path& run, const std::string& written_path) {
  // .../samples/step_00000100/name.flac: the last three parts hold on every machine.
  const fs::path written(written_path);
  const fs::path here = run / written.parent_path().parent_path().filename() /
                        written.parent_path().filename() / written.filename();
  std::error_code error;
  return !written_path.empty() && fs::is_regular_file(here, error) ? here.string() : "";
}

ordered_json run_samples(const fs::path& root, const fs::path& run) {
  struct Item {
    std::string kind;
    std::vector<ordered_json> versions;
  };
  static const std::array<std::string, 5> labels = {"original", "online", "ema", "copy", "decoded"};
  std::map<std::pair<std::string, std::string>, Item> items;  // by name and kind
  size_t files = 0;
  for (const char* part : {"samples", "pictures"}) {
    std::error_code error;
    for (const auto& folder : fs::directory_iterator(run / part, error)) {
      const int64_t step = step_of(folder.path().filename().string());
      if (step < 0 || folder.is_symlink(error) || !folder.is_directory(error)) continue;
      for (const auto& entry : fs::directory_iterator(folder.path(), error)) {
        const std::string kind = kind_of(entry.path());
        if (kind.empty() || entry.path().filename().string().starts_with('.') || entry.is_symlink(error))
          continue;
        if (++files > kMostFiles) break;
        std::string item = entry.path().stem().string(), label = "made";
        for (const std::string& known : labels)
          if (item.size() > known.size() + 1 && item.ends_with("_" + known)) {
            label = known;
            item.resize(item.size() - known.size() - 1);
            break;
          }
        Item& into = items[{item, kind}];
        into.kind = kind;
        into.versions.push_back({{"label", label},
                                 {"step", step},
                                 {"path", entry.path().lexically_relative(root).generic_string()},
                                 {"bytes", entry.file_size(error)}});
      }
    }
  }
  auto list = ordered_json::array();
  for (auto& [name, item] : items) {
    std::sort(item.versions.begin(), item.versions.end(), [](const ordered_json& a, const ordered_json& b) {
      const auto key = [](const ordered_json& v) {
        return std::pair(v["step"].get<int64_t>(), v["label"].get<std::string>());
      };
      return key(a) < key(b);
    });
    list.push_back({{"item", name.first}, {"kind", item.kind}, {"versions", item.versions}});
  }
  return list;
}

ordered_json run_tables(const fs::path& run) {
  auto tables = ordered_json::array();
  std::error_code error;
  std::vector<fs::path> found;
  for (const auto& entry : fs::recursive_directory_iterator(run, error)) {
    if (found.size() < 20 && entry.path().extension() == ".tsv" && !entry.is_symlink(error))
      found.push_back(entry);
  }
  std::sort(found.begin(), found.end());
  for (const fs::path& path : found) {
    std::istringstream lines(read_small(path));
    std::vector<std::vector<std::string>> rows;
    for (std::string line; std::getline(lines, line) && rows.size() < kMostTableRows;) {
      std::istringstream cells(line);
      rows.emplace_back();
      for (std::string cell; std::getline(cells, cell, '\t');) rows.back().push_back(cell);
    }
    if (rows.size() < 2) continue;
    tables.push_back({{"name", path.lexically_relative(run).generic_string()},
                      {"head", rows.front()},
                      {"rows", std::vector(rows.begin() + 1, rows.end())}});
  }
  return tables;
}

std::string content_type_of(const fs::path& path) {
  static const std::map<std::string, std::string> types = {{".flac", "audio/flac"},
                                                           {".wav", "audio/wav"},
                                                           {".ogg", "audio/ogg"},
                                                           {".opus", "audio/ogg"},
                                                           {".mp3", "audio/mpeg"},
                                                           {".png", "image/png"},
                                                           {".jpg", "image/jpeg"},
                                                           {".jpeg", "image/jpeg"},
                                                           {".webp", "image/webp"},
                                                           {".txt", "text/plain; charset=utf-8"},
                                                           {".json", "application/json"},
                                                           {".jsonl", "text/plain; charset=utf-8"},
                                                           {".toml", "text/plain; charset=utf-8"},
                                                           {".tsv", "text/plain; charset=utf-8"},
                                                           {".tokens", "application/octet-stream"},
                                                           {".npy", "application/octet-stream"}};
  const auto found = types.find(path.extension().string());
  return found == types.end() ? "" : found->second;
}

}  // namespace melete

// What lies in a run's folder besides its metrics: settings, checkpoints, samples and pictures, evaluations.
// See docs/runs.md.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace melete {

// Below the runs' folder: what the studio itself keeps (blind tests, what was generated, uploads).
inline constexpr const char* kStudioFolder = "studio";

bool is_run_folder(const std::filesystem::path& folder);
nlohmann::ordered_json run_config(const std::filesystem::path& run);  // null where there is none
nlohmann::ordered_json run_checkpoints(
    const std::filesystem::path& run);  // [{"name", "step", "bytes"}], newest first
// The lines that started it and went on with it, oldest first, as a shell takes them.
std::vector<std::string> run_commands(const std::filesystem::path& run);

// The sample that a row of the metrics names, where it lies in this folder today (rows hold the path of the
// machine that wrote it); else empty.
std::string newest_sample(const std::filesystem::path& run, const std::string& written_path);

// [{"item", "kind": "audio" | "picture" | "text", "versions": [{"label", "step", "path", "bytes"}]}]; paths
// below `root`. An item is what one recording or text of the batch became over the steps: files are called
// <item>_<label>, where the label is original, online, ema, copy or decoded.
nlohmann::ordered_json run_samples(const std::filesystem::path& root, const std::filesystem::path& run);

// Tables that evaluations left here (*.tsv): [{"name", "head": [...], "rows": [[...]]}].
nlohmann::ordered_json run_tables(const std::filesystem::path& run);

std::string content_type_of(const std::filesystem::path& path);  // empty: not a kind of file that is served

}  // namespace melete

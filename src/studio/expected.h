// What a run's recipe gave where it was measured, as curves beside the run's own.
#pragma once

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>

namespace melete {

class RunMetrics;

// The table in a run's folder; null where there is none:
//   {"data", "machine", "main", "label", "training": {figure: {"x": [steps], "low", "high"}}, "validation":
//   the same}
using ReadExpected = std::function<nlohmann::ordered_json(const std::filesystem::path& run)>;

// The same with "seconds" beside every "x": when the run came to these steps, or will. {} where there is no
// table.
nlohmann::ordered_json expected_curves(const ReadExpected& read, const std::filesystem::path& run,
                                       const RunMetrics& metrics);

}  // namespace melete

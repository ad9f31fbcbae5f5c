#include "studio/expected.h"

#include "studio/run_metrics.h"

namespace melete {

using nlohmann::ordered_json;

ordered_json expected_curves(const ReadExpected& read, const std::filesystem::path& run,
                             const RunMetrics& metrics) {
  ordered_json table = read ? read(run) : ordered_json();
  if (!table.is_object()) return ordered_json::object();
  for (const char* side : {"training", "validation"})
    if (const auto figures = table.find(side); figures != table.end())
      for (auto& [name, curve] : figures->items())
        curve["seconds"] = metrics.seconds_at(curve["x"].get<std::vector<int64_t>>());
  return table;
}

}  // namespace melete

// `melete studio export`: the page with its runs inside, one file that opens from disk.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "studio/expected.h"

namespace melete {

struct ReportOptions {
  std::vector<std::string> runs;        // folders
  std::string samples = "newest";       // of every item: newest step, all steps, or none
  std::vector<std::string> items = {};  // only of those with one of these in their names; empty: of all
  int64_t most_bytes = 64 << 20;        // of samples and pictures, before they are written as text
  std::function<nlohmann::ordered_json(const nlohmann::ordered_json& config, int64_t steps)> learning_rates =
      {};
  ReadExpected expected = {};
};

struct Report {
  std::string html;
  int64_t files = 0, left_out = 0;  // samples and pictures inside, and those that there was no room for
};

Report make_report(const ReportOptions& options);

}  // namespace melete

// Whether a run that a test has made is what the table beside its recipe says.
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "run/expectation.h"

namespace melete {

// At every validation that the table has an expectation for: the main figure and the loss are not off by more
// than the band is wide on either side, and the run has said nothing to the contrary.
inline void expect_on_track(const std::string& run) {
  const Expectation table = read_expectation(expectation_of_run(run));
  std::ifstream in(run + "/metrics.jsonl");
  size_t compared = 0;
  for (std::string line; std::getline(in, line);) {
    const auto row = nlohmann::json::parse(line);
    if (row.at("kind") == "warning") {
      EXPECT_EQ(row.at("text").get<std::string>().find(", expected "), std::string::npos) << line;
    }
    if (row.at("kind") != "validation" || !row.contains("expected")) continue;
    for (const std::string& name : {std::string("loss"), table.main.name}) {
      const auto band = row["expected"].find(name);
      if (band == row["expected"].end()) continue;
      const double low = band->at(0), high = band->at(1), value = row["losses"].at(name);
      std::printf("%s at step %d: %s %.4f, expected %.4f to %.4f\n", table.task.c_str(),
                  row.at("step").get<int>(), name.c_str(), value, low, high);
      EXPECT_GE(value, low - (high - low)) << name << " at step " << row["step"];
      EXPECT_LE(value, high + (high - low)) << name << " at step " << row["step"];
      ++compared;
    }
  }
  EXPECT_GT(compared, 0u) << run << " has no validation that the table speaks of";
}

}  // namespace melete

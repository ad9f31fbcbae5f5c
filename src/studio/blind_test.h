// Blind listening tests: what a listener answered without knowing what was heard, kept below the runs'
// folder, and what can be said from it.
//
// ABX: X is A or B; was it told which? A share with its 95 % interval (Wilson's), and how likely guessing
// does as well. Scale: every version of an item gets 0 to 100 (as in MUSHRA, the original hidden among them).
// Means with 95 % intervals (Student's).
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace melete {

struct Share {
  double share = 0, low = 0, high = 0;
};
Share wilson_interval(int64_t hits, int64_t trials);
// Of at least so many hits by tossing a coin.
double chance_of_guessing(int64_t hits, int64_t trials);

struct MeanInterval {
  double mean = 0, low = 0, high = 0;
  int64_t count = 0;
};
MeanInterval mean_interval(const std::vector<double>& values);

// {"kind": "abx", "trials": [{"item", "a", "b", "x": "a" | "b", "answer": "a" | "b"}]} or
// {"kind": "scale", "trials": [{"item", "ratings": {"version": 0..100}}]}; also "listener", "title". Throws
// an Error that says what is wrong. Returns what is to be kept: the same, with nothing else in it.
nlohmann::ordered_json checked_blind_test(const nlohmann::ordered_json& given);

// Of the trials of one or of several tests: by pair or by version.
nlohmann::ordered_json blind_result(const std::vector<nlohmann::ordered_json>& tests);

class BlindTests {
 public:
  explicit BlindTests(std::filesystem::path folder);
  nlohmann::ordered_json add(
      const nlohmann::ordered_json& given);  // as it is kept: with "id", "time", "result"
  nlohmann::ordered_json all() const;        // {"tests": [newest first], "together": {"abx", "scale"}}

 private:
  std::filesystem::path folder_;
};

}  // namespace melete

#include "studio/blind_test.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <fstream>
#include <map>
#include <numeric>

#include "core/base/error.h"
#include "io/base/atomic_file.h"

namespace melete {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

namespace {

constexpr size_t kMostTrials = 2000, kLongestName = 200, kMostTests = 2000;

// Student's 97.5 % quantile.
double t_quantile(int64_t degrees) {
  static constexpr std::array<double, 30> kTable = {12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306,
                                                    2.262,  2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
                                                    2.110,  2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064,
                                                    2.060,  2.056, 2.052, 2.048, 2.045, 2.042};
  if (degrees < 1) return 0;
  if (degrees <= 30) return kTable[static_cast<size_t>(degrees - 1)];
  return 1.96 + 2.46 / static_cast<double>(degrees);
}

std::string word(const ordered_json& from, const char* key, bool needed = true) {
  const auto found = from.find(key);
  const bool there = found != from.end() && found->is_string();
  require(there || !needed, "[blind test] expected a text `{}`", key);
  std::string text = there ? found->get<std::string>() : "";
  require(text.size() <= kLongestName, "[blind test] `{}` is longer than {} bytes", key, kLongestName);
  return text;
}

std::string a_or_b(const ordered_json& from, const char* key) {
  const std::string text = word(from, key);
  require(text == "a" || text == "b", "[blind test] expected `{}` to be a or b, got {}", key, text);
  return text;
}

ordered_json rounded(double value) {
  return std::round(value * 1e6) / 1e6;
}

}  // namespace

Share wilson_interval(int64_t hits, int64_t trials) {
  if (trials <= 0) return {};
  const auto n = static_cast<double>(trials);
  const double p = static_cast<double>(hits) / n, z = 1.959964, z2 = z * z;
  const double centre = (p + z2 / (2 * n)) / (1 + z2 / n);
  const double half = z / (1 + z2 / n) * std::sqrt(p * (1 - p) / n + z2 / (4 * n * n));
  return {p, std::max(0.0, centre - half), std::min(1.0, centre + half)};
}

double chance_of_guessing(int64_t hits, int64_t trials) {
  double sum = 0;
  for (int64_t k = std::max<int64_t>(hits, 0); k <= trials; ++k)
    sum += std::exp(std::lgamma(static_cast<double>(trials) + 1) - std::lgamma(static_cast<double>(k) + 1) -
                    std::lgamma(static_cast<double>(trials - k) + 1) -
                    static_cast<double>(trials) * std::log(2.0));
  return std::min(1.0, sum);
}

MeanInterval mean_interval(const std::vector<double>& values) {
  MeanInterval out;
  out.count = static_cast<int64_t>(values.size());
  if (values.empty()) return out;
  const auto n = static_cast<double>(values.size());
  out.mean = std::accumulate(values.begin(), values.end(), 0.0) / n;
  double squares = 0;
  for (const double value : values) squares += (value - out.mean) * (value - out.mean);
  const double half =
      values.size() > 1 ? t_quantile(out.count - 1) * std::sqrt(squares / (n - 1)) / std::sqrt(n) : 0;
  out.low = out.mean - half;
  out.high = out.mean + half;
  return out;
}

ordered_json checked_blind_test(const ordered_json& given) {
  require(given.is_object(), "[blind test] expected an object");
  const std::string kind = word(given, "kind");
  require(kind == "abx" || kind == "scale", "[blind test] expected the kind abx or scale, got {}", kind);
  const auto trials = given.find("trials");
  require(trials != given.end() && trials->is_array() && !trials->empty() && trials->size() <= kMostTrials,
          "[blind test] expected 1 to {} trials", kMostTrials);
  ordered_json out{
      {"kind", kind}, {"title", word(given, "title", false)}, {"listener", word(given, "listener", false)}};
  out["trials"] = ordered_json::array();
  for (const auto& trial : *trials) {
    require(trial.is_object(), "[blind test] expected a trial to be an object");
    ordered_json kept{{"item", word(trial, "item")}};
    if (kind == "abx") {
      for (const char* key : {"a", "b"}) kept[key] = word(trial, key);
      for (const char* key : {"x", "answer"}) kept[key] = a_or_b(trial, key);
    } else {
      const auto ratings = trial.find("ratings");
      require(ratings != trial.end() && ratings->is_object() && !ratings->empty() && ratings->size() <= 32,
              "[blind test] expected 1 to 32 ratings in a trial");
      for (const auto& [version, score] : ratings->items()) {
        require(version.size() <= kLongestName && score.is_number() && score.get<double>() >= 0 &&
                    score.get<double>() <= 100,
                "[blind test] expected a rating from 0 to 100");
        kept["ratings"][version] = score.get<double>();
      }
    }
    out["trials"].push_back(std::move(kept));
  }
  return out;
}

ordered_json blind_result(const std::vector<ordered_json>& tests) {
  std::map<std::pair<std::string, std::string>, std::pair<int64_t, int64_t>> pairs;  // hits, trials
  std::map<std::string, std::vector<double>> ratings;
  for (const ordered_json& test : tests)
    for (const auto& trial : test.at("trials")) {
      if (test.at("kind") == "abx") {
        auto names = std::pair(trial.at("a").get<std::string>(), trial.at("b").get<std::string>());
        if (names.second < names.first) std::swap(names.first, names.second);
        auto& [hits, count] = pairs[names];
        hits += trial.at("x") == trial.at("answer");
        ++count;
      } else {
        for (const auto& [version, score] : trial.at("ratings").items())
          ratings[version].push_back(score.get<double>());
      }
    }
  ordered_json out{{"abx", ordered_json::array()}, {"scale", ordered_json::array()}};
  for (const auto& [names, counts] : pairs) {
    const Share share = wilson_interval(counts.first, counts.second);
    out["abx"].push_back({{"a", names.first},
                          {"b", names.second},
                          {"hits", counts.first},
                          {"trials", counts.second},
                          {"share", rounded(share.share)},
                          {"low", rounded(share.low)},
                          {"high", rounded(share.high)},
                          {"guessing", rounded(chance_of_guessing(counts.first, counts.second))}});
  }
  for (const auto& [version, scores] : ratings) {
    const MeanInterval interval = mean_interval(scores);
    out["scale"].push_back({{"version", version},
                            {"count", interval.count},
                            {"mean", rounded(interval.mean)},
                            {"low", rounded(interval.low)},
                            {"high", rounded(interval.high)}});
  }
  return out;
}

BlindTests::BlindTests(fs::path folder) : folder_(std::move(folder)) {}

ordered_json BlindTests::add(const ordered_json& given) {
  ordered_json test = checked_blind_test(given);
  test["result"] = blind_result({test});
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  std::error_code error;
  fs::create_directories(folder_, error);
  require(!error, "[blind test] the folder {} cannot be made: {}", folder_.string(), error.message());
  auto milliseconds = std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
  while (fs::exists(folder_ / fmt::format("{}.json", milliseconds))) ++milliseconds;
  test["id"] = std::to_string(milliseconds);
  test["time"] = static_cast<double>(milliseconds) / 1000;
  write_file_atomically((folder_ / fmt::format("{}.json", milliseconds)).string(), test.dump(1));
  return test;
}

ordered_json BlindTests::all() const {
  std::vector<ordered_json> tests;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder_, error)) {
    if (entry.path().extension() != ".json" || entry.is_symlink(error) || tests.size() >= kMostTests)
      continue;
    std::ifstream in(entry.path());
    auto read = ordered_json::parse(in, nullptr, false);
    try {  // a person may have changed the file
      auto test = checked_blind_test(read);
      test["id"] = entry.path().stem().string();
      test["time"] = read.value("time", 0.0);
      test["result"] = blind_result({test});
      tests.push_back(std::move(test));
    } catch (const std::exception&) {
    }
  }
  std::sort(tests.begin(), tests.end(),
            [](const ordered_json& a, const ordered_json& b) { return a["time"] > b["time"]; });
  return {{"tests", tests}, {"together", blind_result(tests)}};
}

}  // namespace melete

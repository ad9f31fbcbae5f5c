#include "studio/report.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <set>

#include "core/base/error.h"
#include "core/base/version.h"
#include "studio/blind_test.h"
#include "studio/curves.h"
#include "studio/page.h"
#include "studio/run_files.h"
#include "studio/run_index.h"

namespace melete {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

namespace {

constexpr int64_t kReportPoints = 1500;

std::string base64(const std::string& bytes) {
  static constexpr char kLetters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t three = 0;
    for (size_t k = 0; k < 3; ++k)
      three = three << 8 | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0u);
    for (size_t k = 0; k < 4; ++k) out += i + k <= bytes.size() ? kLetters[three >> (18 - 6 * k) & 63] : '=';
  }
  return out;
}

ordered_json curves_of(const RunMetrics& metrics, bool by_time) {
  ordered_json out = ordered_json::object();
  CurveRequest request;
  request.by_time = by_time;
  request.points = kReportPoints;
  for (const std::string& name : metrics.series_names()) {
    const auto [table, column] = metrics.find(name);
    out[name] = ordered_json::parse(curve_json(make_curve(*table, *column, request)));
  }
  return out;
}

// Puts files into the report while there is room.
class Inlined {
 public:
  explicit Inlined(Report& report, int64_t room) : report_(report), room_(room) {}

  bool add(const std::string& name, const fs::path& path) {
    if (files_.contains(name)) return true;
    std::ifstream in(path, std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(in), {}};
    if (!in.good() && bytes.empty()) return false;
    if (static_cast<int64_t>(bytes.size()) > room_) {
      ++report_.left_out;
      return false;
    }
    room_ -= static_cast<int64_t>(bytes.size());
    files_[name] = "data:" + content_type_of(path) + ";base64," + base64(bytes);
    ++report_.files;
    return true;
  }
  ordered_json take() { return std::move(files_); }

 private:
  Report& report_;
  int64_t room_;
  ordered_json files_ = ordered_json::object();
};

// The versions that go into the report, each with its file; `name` tells runs of the same folder name apart.
ordered_json chosen_samples(const fs::path& run, const std::string& name, const ReportOptions& options,
                            Inlined& files) {
  auto kept = ordered_json::array();
  const std::string& which = options.samples;
  if (which == "none") return kept;
  for (auto& item : run_samples(run, run)) {
    const std::string called = item["item"];
    const auto in_its_name = [&](const std::string& part) { return called.find(part) != std::string::npos; };
    if (!options.items.empty() && std::none_of(options.items.begin(), options.items.end(), in_its_name))
      continue;
    auto& versions = item["versions"];
    const int64_t newest = versions.empty() ? 0 : versions.back()["step"].get<int64_t>();
    auto chosen = ordered_json::array();
    for (auto& version : versions) {
      if (which == "newest" && version["step"] != newest) continue;
      const fs::path path = run / version["path"].get<std::string>();
      version["path"] = name + "/" + version["path"].get<std::string>();
      if (files.add(version["path"], path)) chosen.push_back(version);
    }
    versions = chosen;
    if (!versions.empty()) kept.push_back(item);
  }
  return kept;
}

}  // namespace

Report make_report(const ReportOptions& options) {
  require(!options.runs.empty(), "[export] expected one run or more, got none");
  Report report;
  Inlined files(report, options.most_bytes);
  ordered_json data{
      {"version", version()},
      {"made", std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count()},
      {"runs", ordered_json::array()}};
  std::set<std::string> names;
  for (const std::string& given : options.runs) {
    std::error_code error;
    const fs::path run = fs::canonical(given, error);
    require(!error && is_run_folder(run), "[export] expected a run's folder, got {}; it has no metrics.jsonl",
            given);
    std::string name = run.filename().string();
    for (int number = 2; !names.insert(name).second; ++number)
      name = fmt::format("{}-{}", run.filename().string(), number);
    RunIndex index(run);
    index.look();
    ordered_json details = index.details(".");
    details["id"] = details["name"] = name;
    details["newest_sample"] = "";
    data["runs"].push_back(details);
    index.read(".", [&](const RunMetrics& metrics) {
      data["curves"][name] = curves_of(metrics, false);
      data["curves_by_time"][name] = curves_of(metrics, true);
      data["expected"][name] = expected_curves(options.expected, run, metrics);
    });
    data["samples"][name] = chosen_samples(run, name, options, files);
    data["tables"][name] = run_tables(run);
    if (options.learning_rates)
      data["learning_rates"][name] =
          options.learning_rates(details["config"], details["steps_total"].get<int64_t>());
  }
  data["files"] = files.take();
  // "</script>" inside a text would end the element that holds it.
  std::string json = data.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
  for (size_t at = 0; (at = json.find("</", at)) != std::string::npos; at += 3) json.insert(at + 1, "\\");
  const std::string_view page = studio_page(), place = "id=\"report\">";
  const size_t found = page.find(place);
  require(found != std::string_view::npos, "[export] the page of this build has no place for a report");
  report.html.append(page.substr(0, found + place.size()));
  report.html += json;
  report.html.append(page.substr(found + place.size()));
  return report;
}

}  // namespace melete

#include "run/expectation.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "config/toml_file.h"
#include "core/base/error.h"
#include "core/base/human.h"

namespace melete {

namespace {

using nlohmann::ordered_json;

constexpr const char* kEnding = ".expect.toml";
constexpr const char* kRecipeEnding = ".toml";

std::string text_of(const ordered_json& values, const char* key) {
  const auto found = values.find(key);
  return found != values.end() && found->is_string() ? found->get<std::string>() : "";
}

int64_t whole_of(const ordered_json& values, const char* key, int64_t otherwise) {
  const auto found = values.find(key);
  return found != values.end() && found->is_number_integer() ? found->get<int64_t>() : otherwise;
}

Expectation::Rows rows_of(const ordered_json& table, const std::string& path, const std::string& figure) {
  require(table.is_object(), "[{}] expected rows of {} as step = [low, high]", path, figure);
  Expectation::Rows rows;
  for (const auto& [key, value] : table.items()) {
    int64_t step = 0;
    const auto read = std::from_chars(key.data(), key.data() + key.size(), step);
    require(read.ec == std::errc() && read.ptr == key.data() + key.size() && step >= 0,
            "[{}] expected a step as the key of a row of {}, got {}", path, figure, key);
    const bool pair = value.is_array() && value.size() == 2 && value[0].is_number() && value[1].is_number();
    require(pair, "[{}] expected [low, high] for {} at step {}, got {}", path, figure, step, value.dump());
    const Band band{value[0].get<double>(), value[1].get<double>()};
    require(std::isfinite(band.low) && std::isfinite(band.high) && band.low <= band.high,
            "[{}] expected a low that is not above the high for {} at step {}, got {}", path, figure, step,
            value.dump());
    rows[step] = band;
  }
  return rows;
}

std::map<std::string, Expectation::Rows> side_of(const ordered_json& values, const char* side,
                                                 const std::string& path) {
  std::map<std::string, Expectation::Rows> figures;
  const auto found = values.find(side);
  if (found == values.end()) return figures;
  require(found->is_object(), "[{}] expected [{}.FIGURE] tables", path, side);
  for (const auto& [name, table] : found->items()) figures[name] = rows_of(table, path, name);
  return figures;
}

// JSON's escapes are among TOML's.
std::string quoted(const std::string& text) {
  return ordered_json(text).dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

std::string key_text(const std::string& name) {
  const bool bare = !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '-';
  });
  return bare ? name : quoted(name);
}

// TOML tells whole numbers from others by the point.
std::string number_text(double value) {
  std::string text = fmt::format("{:.4g}", value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::string side_text(const char* side, const std::map<std::string, Expectation::Rows>& figures) {
  std::string text;
  for (const auto& [name, rows] : figures) {
    if (rows.empty()) continue;
    text += fmt::format("\n[{}.{}]\n", side, key_text(name));
    for (const auto& [step, band] : rows)
      text += fmt::format("{} = [{}, {}]\n", step, number_text(band.low), number_text(band.high));
  }
  return text;
}

}  // namespace

std::optional<Band> Expectation::at(const std::map<std::string, Rows>& side, const std::string& name,
                                    int64_t step) {
  const auto figure = side.find(name);
  if (figure == side.end()) return {};
  const Rows& rows = figure->second;
  const auto after = rows.lower_bound(step);
  if (after == rows.end()) return {};
  if (after->first == step) return after->second;
  if (after == rows.begin()) return {};
  const auto before = std::prev(after);
  const double share =
      static_cast<double>(step - before->first) / static_cast<double>(after->first - before->first);
  return Band{std::lerp(before->second.low, after->second.low, share),
              std::lerp(before->second.high, after->second.high, share)};
}

Expectation read_expectation(const std::string& path) {
  ordered_json values;
  for (const TomlFile& file : read_toml(path)) values.update(file.values, true);
  Expectation table;
  table.task = text_of(values, "task");
  table.data = text_of(values, "data");
  table.machine = text_of(values, "machine");
  table.label = text_of(values, "label");
  table.main.name = text_of(values, "main");
  const auto higher = values.find("higher_is_better");
  table.main.higher_is_better = higher != values.end() && higher->is_boolean() && higher->get<bool>();
  table.steps = whole_of(values, "steps", 0);
  table.runs = whole_of(values, "runs", 1);
  if (const auto seconds = values.find("step_seconds"); seconds != values.end() && seconds->is_number())
    table.step_seconds = seconds->get<double>();
  if (const auto unlike = values.find("unlike"); unlike != values.end() && unlike->is_array())
    for (const ordered_json& line : *unlike)
      if (line.is_string()) table.unlike.push_back(line);
  table.training = side_of(values, "training", path);
  table.validation = side_of(values, "validation", path);
  require(!table.training.empty() || !table.validation.empty(),
          "[{}] expected rows under [training.FIGURE] or [validation.FIGURE], got none", path);
  return table;
}

std::string expectation_text(const Expectation& table) {
  std::string text = fmt::format("task = {}\ndata = {}\nmachine = {}\n", quoted(table.task),
                                 quoted(table.data), quoted(table.machine));
  text += fmt::format("runs = {}\nsteps = {}\n", table.runs, table.steps);
  if (table.step_seconds > 0) text += fmt::format("step_seconds = {}\n", number_text(table.step_seconds));
  text += fmt::format("main = {}\n", quoted(table.main.name));
  if (table.main.higher_is_better) text += "higher_is_better = true\n";
  if (!table.label.empty()) text += fmt::format("label = {}\n", quoted(table.label));
  if (!table.unlike.empty()) {
    text += "unlike = [";
    for (size_t i = 0; i < table.unlike.size(); ++i) text += (i == 0 ? "" : ", ") + quoted(table.unlike[i]);
    text += "]\n";
  }
  return text + side_text("training", table.training) + side_text("validation", table.validation);
}

std::string expectation_beside(const std::string& recipe_path) {
  std::string path = recipe_path;
  if (path.ends_with(kRecipeEnding)) path.resize(path.size() - std::string(kRecipeEnding).size());
  return path + kEnding;
}

std::string expectation_of_run(const std::string& run_folder) {
  return run_folder + "/" + (kEnding + 1);
}

bool is_expectation_file(const std::string& path) {
  return path.ends_with(kEnding);
}

std::string band_text(const Band& band) {
  return short_number(band.low) + " to " + short_number(band.high);
}

}  // namespace melete

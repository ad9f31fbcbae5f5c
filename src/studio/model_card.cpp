#include "studio/model_card.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <cmath>
#include <ctime>
#include <filesystem>

#include "core/base/error.h"
#include "core/base/human.h"
#include "core/base/shell_line.h"
#include "studio/model_files.h"
#include "studio/run_files.h"
#include "studio/run_index.h"

namespace melete {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

namespace {

std::string day(double time) {
  return time > 0 ? fmt::format("{:%Y-%m-%d}", fmt::gmtime(static_cast<std::time_t>(time))) : "unknown";
}

// A stroke would end the cell of a table.
std::string in_a_cell(std::string text) {
  for (size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2) text.insert(at, "\\");
  return text;
}

void flat_settings(const ordered_json& value, const std::string& name, std::string& rows) {
  if (value.is_object()) {
    for (const auto& [key, inner] : value.items())
      flat_settings(inner, name.empty() ? key : name + "." + key, rows);
    return;
  }
  rows += fmt::format("| {} | `{}` |\n", name, in_a_cell(value.dump()));
}

std::string table_text(const ordered_json& table) {
  std::string out = fmt::format("\n{}\n\n|", table["name"].get<std::string>());
  for (const auto& cell : table["head"]) out += " " + cell.get<std::string>() + " |";
  out += "\n|";
  for (size_t i = 0; i < table["head"].size(); ++i) out += "---|";
  for (const auto& row : table["rows"]) {
    out += "\n|";
    for (const auto& cell : row) out += " " + cell.get<std::string>() + " |";
  }
  return out + "\n";
}

}  // namespace

std::string model_card(const std::string& run_folder, const std::vector<std::string>& uses) {
  std::error_code error;
  const fs::path run = fs::canonical(run_folder, error);
  require(!error && is_run_folder(run), "[card] expected a run's folder, got {}", run_folder);
  RunIndex index(run);
  index.look();
  const ordered_json details = index.details(".");
  std::string card = fmt::format("# {}\n\n", run.filename().string());
  const auto fact = [&card](const std::string& name, const std::string& text) {
    if (!text.empty()) card += fmt::format("| {} | {} |\n", name, text);
  };
  card += "| | |\n|---|---|\n";
  fact("what", details["task"]);
  // The program that trained it, which may be another than the one that writes this.
  const ordered_json checkpoints = run_checkpoints(run);
  const ordered_json meta =
      checkpoints.empty() ? ordered_json()
                          : checkpoint_meta(run / "checkpoints" / checkpoints[0]["name"].get<std::string>());
  if (meta.is_object() && meta.contains("version"))
    fact("trained with", "melete " + meta["version"].get<std::string>());
  fact("trained", fmt::format("{} of {} steps, {} of training, {} to {}", details["step"].get<int64_t>(),
                              details["steps_total"].get<int64_t>(),
                              human_seconds(details["trained_seconds"].get<double>()),
                              day(details["started"].get<double>()), day(details["updated"].get<double>())));
  std::string parameters, data;
  for (const auto& [part, count] : details["parameters"].items())
    parameters +=
        fmt::format("{}{} {}", parameters.empty() ? "" : ", ", part, human_count(count.get<double>()));
  for (const auto& line : details["data"]) data += (data.empty() ? "" : "; ") + line.get<std::string>();
  for (const auto& command : details["commands"])
    fact("by", fmt::format("`{}`", in_a_cell(command.get<std::string>())));
  fact("parameters", parameters);
  fact("data", data);
  fact("machine",
       fmt::format("{}, {}", details["device"].get<std::string>(), details["precision"].get<std::string>()));
  fact("health",
       fmt::format("{} skipped steps, {} rollbacks, {} warnings", details["skipped_total"].get<int64_t>(),
                   details["rollbacks"].get<int64_t>(), details["warnings"].get<int64_t>()));

  std::string figures;
  index.read(".", [&](const RunMetrics& metrics) {
    for (const auto& [label, table] : metrics.validations()) {
      if (table.rows() == 0) continue;
      for (const auto& [name, values] : table.columns)
        if (std::isfinite(values.back()))
          figures += fmt::format("| {} | {} | {} | {} |\n", name, label, short_number(values.back()),
                                 table.steps.back());
    }
  });
  if (!figures.empty())
    card +=
        "\n## Validation during training, at its end\n\n| figure | weights | value | step "
        "|\n|---|---|---|---|\n" +
        figures;
  const ordered_json tables = run_tables(run);
  if (!tables.empty()) card += "\n## Evaluations\n";
  for (const auto& table : tables) card += table_text(table);

  card += "\n## Use\n\n";
  for (const std::string& line : uses) card += "    " + line + "\n";
  card += "    " + shell_line({"melete", "inspect", run_folder, "--summary"}) + "\n";
  card +=
      "    " +
      shell_line({"melete", "train", details["task"].get<std::string>(), "--out", run_folder, "--resume"}) +
      "\n";
  std::string settings;
  flat_settings(details["config"], "", settings);
  if (!settings.empty()) card += "\n## Settings\n\n| setting | value |\n|---|---|\n" + settings;
  return card;
}

}  // namespace melete

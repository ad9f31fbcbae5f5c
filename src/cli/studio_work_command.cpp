// `melete studio work`: what the studio starts for its jobs. Each line of standard input is a job, the words
// of a command as a JSON list; each is answered, after whatever the command itself prints, by a line that
// begins with a mark and says how it went and which models are in memory now.
#include <fmt/format.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/app.h"
#include "cli/arguments.h"
#include "cli/studio_command.h"
#include "core/base/error.h"
#include "run/kept_models.h"

namespace melete {

int studio_work_command(const std::vector<std::string>& args) {
  KeptLimits limits{.models = 8};
  double memory_gigabytes = 0;
  Arguments arguments("studio work", "reads commands from standard input, and keeps their models in memory");
  arguments.option("models", limits.models, "that are kept at most").at_least(1);
  arguments.option("memory", memory_gigabytes, "that they take at most; 0: no limit").at_least(0).unit("GB");
  if (!arguments.parse(args)) return 0;
  limits.bytes = static_cast<int64_t>(memory_gigabytes * 1e9);
  keep_models(limits);
  for (std::string line; std::getline(std::cin, line);) {
    const auto words = nlohmann::ordered_json::parse(line, nullptr, false);
    require(words.is_array(), "[studio work] expected the words of a command as a JSON list, got {}",
            line.substr(0, 80));
    nlohmann::ordered_json answer{{"code", run_program(words.get<std::vector<std::string>>())}};
    end_job_of_kept_models();
    answer["kept"] = nlohmann::ordered_json::array();
    for (const KeptModel& model : kept_models())
      answer["kept"].push_back({{"kind", model.kind}, {"path", model.path}, {"bytes", model.bytes}});
    std::fflush(stderr);
    fmt::print("\x1e{}\n", answer.dump());
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace melete

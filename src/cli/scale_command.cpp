#include "cli/scale_command.h"

#include <fmt/format.h>

#include "cli/arguments.h"
#include "cli/machine_words.h"
#include "cli/terminal.h"
#include "core/base/error.h"
#include "systems/audiolm/load.h"
#include "systems/audiolm/scale_eval.h"

namespace melete {

int scale_command(const std::vector<std::string>& args) {
  AudioLmPaths paths;
  AudioLmRequest request;
  std::string from;
  int64_t count = 48, rate_hz = 24000, seed = 1000;
  MachineWords machine;
  double prompt_seconds = 2, temperature = 1;
  request.seconds = 2;
  Arguments arguments(
      "bench scale",
      "whether what models make of synthesized music stays in the scale of its prompt and keeps its beat");
  arguments.option("from", from, "folder of runs: finds the parts that are not given");
  arguments.option("semantic", paths.semantic, "run or checkpoint of the semantic stage");
  arguments.option("coarse", paths.coarse, "run or checkpoint of the coarse stage");
  arguments.option("fine", paths.fine, "run or checkpoint of the fine stage");
  arguments.option("tokenizer", paths.tokenizer,
                   "semantic tokenizer; default: the one they were trained with");
  arguments.option("codec", paths.codec, "codec; default: the one they were trained with");
  arguments.option("pieces", count, "how many prompts, of music without drums").at_least(2);
  arguments.option("prompt_seconds", prompt_seconds, "of each piece").at_least(0.1).unit("s");
  arguments.option("seconds", request.seconds, "of each continuation").at_least(0.1).unit("s");
  arguments.option("rate", rate_hz, "that pieces are made at").at_least(8000).at_most(48000).unit("Hz");
  arguments.option("temperature", temperature, "of all stages").at_least(0);
  arguments.option("seed", seed, "of the pieces, and of what is made").at_least(0);
  machine.describe(arguments);
  arguments.example("bench scale --from demo-output/audiolm --codec demo-output/run");
  if (!arguments.parse(args)) return 0;
  if (!from.empty()) find_parts(from, paths);
  AudioLm model = load_audiolm(paths, Weights::best, machine.start());
  if (model.conditioned()) throw UsageError("these models need a text; only models without one are measured");
  request.seed = static_cast<uint64_t>(seed);
  for (SamplingConfig* sampling : {&request.semantic, &request.coarse, &request.fine})
    sampling->temperature = temperature;
  const auto pieces =
      tonal_pieces(static_cast<uint64_t>(seed), count, rate_hz, prompt_seconds + request.seconds + 0.1);
  TextTable table({"", "in its own scale", "in the others'", "difference", "on its own beat",
                   "on the others'", "difference"});
  for (const ScaleFigure& figure : eval_scale(model, pieces, rate_hz, prompt_seconds, request))
    table.row({figure.what, fmt::format("{:.1f} %", 100 * figure.scale.own),
               fmt::format("{:.1f} %", 100 * figure.scale.others),
               fmt::format("{:.1f} +- {:.1f}", 100 * (figure.scale.own - figure.scale.others),
                           100 * figure.scale.error),
               fmt::format("{:.2f}", figure.beat.own), fmt::format("{:.2f}", figure.beat.others),
               fmt::format("{:.2f} +- {:.2f}", figure.beat.own - figure.beat.others, figure.beat.error)});
  fmt::print("{} pieces, {:.3g} s of prompt, {:.3g} s after it\n\n{}", count, prompt_seconds, request.seconds,
             table.text());
  return 0;
}

}  // namespace melete

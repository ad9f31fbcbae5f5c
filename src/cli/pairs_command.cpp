#include "cli/pairs_command.h"

#include <fmt/format.h>

#include <optional>

#include "cli/arguments.h"
#include "cli/machine_words.h"
#include "cli/say_weights.h"
#include "cli/terminal.h"
#include "core/base/error.h"
#include "core/engine.h"
#include "data/token_folder.h"
#include "dist/base/environment.h"
#include "dist/launcher.h"
#include "systems/spear_tts/pairs.h"
#include "systems/spear_tts/system.h"

namespace melete {

namespace {

struct BackTranslation {
  spear_tts::ReadingOptions reading;
  spear_tts::PairFilter filter;
};

void describe(Schema& schema, BackTranslation& settings) {
  spear_tts::describe(schema, settings.reading);
  spear_tts::describe(schema, settings.filter);
}

// The program starts itself again; every process reads its share of the shards.
void read_in_processes(int64_t processes, int64_t threads, const std::vector<std::string>& args) {
  LaunchOptions options;
  options.processes = processes;
  options.words = without_flags(args, {"procs", "threads"});
  options.words.insert(options.words.begin(), {"data", "back-translate"});
  const int64_t cores = threads > 0 ? threads : available_threads();
  options.words.insert(options.words.end(),
                       {"--threads", std::to_string(std::max<int64_t>(1, cores / processes))});
  options.on_line = [](int64_t rank, const std::string& line) {
    if (rank == 0) fmt::print(stderr, "{}\n", line);  // the others are as far
  };
  const LaunchResult result = launch(options);
  require(result.code == 0, "[procs] {}; what was read is kept: start it again", result.reason);
}

void print_report(const spear_tts::FilterReport& report, const std::string& out) {
  TextTable table({"pairs", "share", ""});
  const auto row = [&](int64_t count, const std::string& what) {
    table.row({fmt::format("{}", count),
               fmt::format("{:.1f} %", 100.0 * static_cast<double>(count) / static_cast<double>(report.all)),
               what});
  };
  row(report.kept, "kept");
  for (const auto& [why, count] : report.dropped) row(count, "dropped: " + why);
  fmt::print("{}scores (log probability of a token):", table.text());
  for (const auto& [name, score] : report.scores) fmt::print("  {} {:.3f}", name, score);
  fmt::print("\ncharacters for each semantic token: {:.2f} as a rule\n", report.median_ratio);
  if (report.labelled > 0)
    fmt::print("character error against the {} texts there are: {:.1f} %, of those kept {:.1f} %\n",
               report.labelled, 100 * report.character_error, 100 * report.kept_character_error);
  require(report.kept > 0,
          "[back-translate] nothing was kept; look at the scores above and give other thresholds, or train "
          "the reading model longer");
  fmt::print("{} pairs in {}\n", report.kept, out);
}

}  // namespace

int back_translate_command(const std::vector<std::string>& args) {
  std::string tokens, from, out, weights = "ema";
  int64_t processes = 0;
  MachineWords machine;
  BackTranslation settings;
  Schema schema = schema_of(settings);
  Arguments arguments("data back-translate",
                      "reads untranscribed speech as text with a trained model, and keeps what it read well "
                      "as pairs to train on");
  arguments.word("tokens", tokens, "folder that `melete data tokenize` made");
  arguments.option("from", from, "run or checkpoint of spear-back-translate");
  arguments.option("out", out, "folder for the pairs; a begun one is finished, other thresholds filter anew");
  arguments.option("weights", weights, "ema: averaged, where there is an average; online: as they are")
      .one_of({"ema", "online"});
  arguments.option("procs", processes, "share the work out over so many processes; 0: this one")
      .at_least(0)
      .at_most(4096);
  machine.describe(arguments);
  arguments.alias("o", "out");
  arguments.settings(schema);
  arguments.example("data back-translate tokens --from runs/read -o pairs");
  arguments.example("data back-translate tokens --from runs/read -o pairs --least_score -0.3");
  if (!arguments.parse(args)) return 0;
  if (from.empty()) throw UsageError("expected --from RUN of spear-back-translate, got none");
  if (out.empty()) throw UsageError("expected -o FOLDER, got none; for example -o pairs");
  schema.check();

  const Place place = read_place();
  if (processes > 0) {
    if (!place.alone())
      throw UsageError(fmt::format("--procs inside a group of {} processes that {} has started; leave it out",
                                   place.size, place.source));
    read_in_processes(processes, machine.threads, args);
  } else {
    const SayWeights say_weights;
    spear_tts::Reader reader = spear_tts::open_reader(from, weights_named(weights), kBackTranslateTask,
                                                      machine.start(place.local_rank));
    std::optional<ProgressBar> bar;  // appears with the first report, when the total is known
    settings.reading.rank = place.rank;
    settings.reading.rank_count = place.size;
    settings.reading.progress = [&](int64_t done, int64_t of) {
      if (!bar && of > 0) bar.emplace("reading", of, "items");
      bar->update(done);
    };
    const spear_tts::ReadingResult result = spear_tts::read_speech(reader, tokens, out, settings.reading);
    if (bar) bar->finish();
    if (place.main()) {
      fmt::print("{} items read{}", result.items, place.alone() ? "" : " by the first process");
      if (result.already > 0) fmt::print(", {} were there already", result.already);
      if (result.labelled > 0) fmt::print(", {} have a text and are left out", result.labelled);
      fmt::print("\n");
    }
    if (!place.alone()) return 0;  // whoever started us filters what all have read
  }
  print_report(spear_tts::filter_pairs(out, settings.filter), out);
  return 0;
}

int pairs_command(const std::vector<std::string>& args) {
  std::string what, from, out;
  spear_tts::RowsOptions options;
  Arguments arguments(
      "data pairs",
      "spear-tts-pytorch's folder of generated pairs (.pt rows) to a folder of tokens, or back");
  arguments.word("what", what, "folder of .pt rows, or of tokens with text");
  arguments.option("from", from, "run or checkpoint whose text tokenizer made, or shall make, the ids");
  arguments.option("out", out, "folder to write");
  arguments.option("delimiter", options.delimiter, "id between speech and text of a row");
  arguments.alias("o", "out");
  arguments.example("data pairs pairs --from runs/read -o generated-audio-text-pairs");
  arguments.example("data pairs generated-audio-text-pairs --from runs/read -o pairs");
  if (!arguments.parse(args)) return 0;
  if (from.empty()) throw UsageError("expected --from RUN, whose text tokenizer is needed, got none");
  if (out.empty()) throw UsageError("expected -o FOLDER, got none");
  spear_tts::Reader reader = spear_tts::open_reader_of_any(from, Weights::best);
  if (is_token_folder(what))
    fmt::print("{} rows in {}\n", spear_tts::write_rows(reader, what, out, options), out);
  else
    fmt::print("{} pairs in {}\n", spear_tts::read_rows(reader, what, out, options), out);
  return 0;
}

}  // namespace melete

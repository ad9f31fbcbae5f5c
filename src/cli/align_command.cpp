#include "cli/align_command.h"

#include <fmt/format.h>

#include "cli/arguments.h"
#include "cli/machine_words.h"
#include "cli/terminal.h"
#include "core/base/error.h"
#include "systems/voicebox/align_recordings.h"

namespace melete {

namespace {

constexpr double kManyShort = 0.3;  // an aligner that has learned leaves about one in a hundred

}  // namespace

int align_command(const std::vector<std::string>& args) {
  std::string data, from, out, known;
  MachineWords machine;
  Arguments arguments("data align", "finds when each phoneme of the recordings is said, from their texts");
  arguments.word("data", data, "folder of recordings or manifest, with texts");
  arguments.option("from", from, "run or checkpoint of aligner");
  arguments.option("out", out, "file of timings to write (.jsonl)");
  arguments.option("known", known,
                   "timings that are right (of `data synth --timings`, TextGrids, CTM): prints how far off "
                   "ours are");
  machine.describe(arguments);
  arguments.alias("o", "out");
  arguments.example("data align recordings --from runs/aligner -o timings.jsonl");
  if (!arguments.parse(args)) return 0;
  if (from.empty())
    throw UsageError("expected --from RUN of aligner, got none; `melete train aligner` makes one");
  if (out.empty()) throw UsageError("expected -o FILE, got none; for example -o timings.jsonl");

  voicebox::SpeechAligner aligner(from, machine.start());
  std::vector<SkippedFile> unreadable;
  const auto entries = load_entries(data, &unreadable);
  ProgressBar bar("aligning", static_cast<int64_t>(entries.size()), "files");
  auto result =
      voicebox::align_recordings(aligner, entries, [&](int64_t done, int64_t) { bar.update(done); });
  bar.finish();
  result.skipped.insert(result.skipped.end(), unreadable.begin(), unreadable.end());
  for (const SkippedFile& file : result.skipped)
    fmt::print(stderr, "melete: skipped {}: {}\n", file.path, file.reason);
  require(!result.timings.list.empty(), "[data align] none of the recordings of {} could be aligned", data);
  write_timings(out, result.timings);
  const double brief = voicebox::short_share(result.timings, aligner.frame_seconds());
  fmt::print("{}: timings of {} recordings, {} skipped; {:.1f} % of the phonemes last one frame\n", out,
             result.timings.list.size(), result.skipped.size(), 100 * brief);
  if (brief > kManyShort)
    fmt::print(
        stderr,
        "melete: warning: so many phonemes of one frame are no alignment; has the aligner learned (its "
        "pictures show a path of steps), and are the texts what is said?\n");
  if (known.empty()) return 0;
  const auto errors = voicebox::timing_errors(result.timings, read_timings(known));
  fmt::print(
      "{} ends of phonemes in {} recordings: median error {:.1f} ms, mean {:.1f} ms, {:.0f} % within 25 "
      "ms, {:.0f} % within 50 ms\n",
      errors.ends, errors.recordings, errors.median_ms, errors.mean_ms, 100 * errors.within_25_ms,
      100 * errors.within_50_ms);
  return 0;
}

}  // namespace melete

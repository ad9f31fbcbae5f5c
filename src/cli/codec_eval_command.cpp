#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <optional>

#include "cli/arguments.h"
#include "cli/codec_command.h"
#include "cli/machine_words.h"
#include "cli/terminal.h"
#include "core/base/error.h"
#include "data/base/manifest.h"
#include "io/base/atomic_file.h"
#include "io/base/audio_file.h"
#include "io/resample_audio.h"
#include "measure/codec_eval.h"
#include "roles/open.h"
#include "run/reporter.h"
#include "run/sample_writer.h"

namespace melete {

namespace {

std::vector<EvalRecording> read_recordings(const std::string& from, const Codec& codec, double max_seconds) {
  std::vector<EvalRecording> recordings;
  int64_t skipped = 0;
  for (const ManifestEntry& entry : load_entries(from)) {
    try {
      const auto frames = static_cast<int64_t>(max_seconds * entry.rate_hz);
      const Audio audio = read_audio(entry.path, 0, frames);
      const at::Tensor mono = at::tensor(downmix(audio), at::kFloat).unsqueeze(0);
      const at::Tensor wave =
          cut_to_multiple(resample_audio(mono, audio.rate_hz, codec.rate_hz()), codec.samples_per_frame());
      require(wave.size(1) > 0, "[codec] a frame is {} samples, the recording is shorter",
              codec.samples_per_frame());
      recordings.push_back({std::filesystem::path(entry.path).stem().string(), wave});
    } catch (const Error& error) {
      fmt::print(stderr, "melete: skipped {}: {}\n", entry.path, error.what());
      ++skipped;
    }
  }
  if (skipped > 0) fmt::print(stderr, "melete: {} recordings were skipped\n", skipped);
  require(!recordings.empty(), "[codec] no usable recordings in {}", from);
  return recordings;
}

std::string shown_value(const SoundFigure& figure) {
  return std::isnan(figure.value) ? "-" : fmt::format("{:.{}f}", figure.value, figure.digits);
}

// A row a way of coding; columns are the figures from `first` on, `count` of them.
std::string figures_table(const std::optional<RatePoint>& untrained, const CodecEval& eval, size_t first,
                          size_t count, bool with_speed) {
  const auto& kinds = eval.points.front().figures;
  std::vector<std::string> head{"", "kbit/s"}, better{"better is", "lower"};
  for (size_t i = first; i < first + count; ++i) {
    head.push_back(kinds[i].label);
    better.push_back(kinds[i].higher_is_better ? "higher" : "lower");
  }
  if (with_speed)
    for (const char* name : {"encode", "decode"}) head.push_back(name), better.push_back("higher");
  TextTable table(head);
  const auto row = [&](const RatePoint& point, const std::string& name) {
    std::vector<std::string> cells{name, fmt::format("{:.2f}", point.bits_per_second / 1000)};
    for (size_t i = first; i < first + count; ++i) cells.push_back(shown_value(point.figures[i]));
    if (with_speed)
      for (const double speed : {point.encode_speed, point.decode_speed})
        cells.push_back(fmt::format("{:.1f} x", speed));
    table.row(cells);
  };
  if (untrained) row(*untrained, "untrained");
  for (const RatePoint& point : eval.points) row(point, point.name);
  table.row(better);
  return table.text();
}

std::string stages_table(const CodecEval& eval, int64_t groups, int64_t codebook_size) {
  TextTable table({"quantizer", "perplexity", fmt::format("used of {} codes", codebook_size)});
  const auto stages = static_cast<int64_t>(eval.stages.size()) / groups;
  for (size_t i = 0; i < eval.stages.size(); ++i) {
    const int64_t stage = static_cast<int64_t>(i) % stages + 1, group = static_cast<int64_t>(i) / stages + 1;
    table.row({groups > 1 ? fmt::format("{}.{}", group, stage) : std::to_string(stage),
               fmt::format("{:.1f}", eval.stages[i].perplexity),
               fmt::format("{:.0f} %", 100 * eval.stages[i].share)});
  }
  return table.text();
}

// The same figures for other programs.
std::string tsv(const CodecEval& eval) {
  std::string text = "name\tbits_per_second";
  for (const SoundFigure& figure : eval.points.front().figures) text += "\t" + figure.name;
  text += "\tencode_speed\tdecode_speed\n";
  for (const RatePoint& point : eval.points) {
    text += fmt::format("{}\t{:.1f}", point.name, point.bits_per_second);
    for (const SoundFigure& figure : point.figures) text += fmt::format("\t{:.6f}", figure.value);
    text += fmt::format("\t{:.3f}\t{:.3f}\n", point.encode_speed, point.decode_speed);
  }
  return text;
}

}  // namespace

int codec_eval_command(const std::vector<std::string>& args) {
  std::string from, data, out, weights = "ema";
  int64_t shown = 4;
  MachineWords machine;
  double max_seconds = 30;
  Arguments arguments(
      "codec eval",
      "measures a codec on recordings over its quantizers, beside Opus and the same codec untrained");
  arguments.option("from", from, kCodecFrom);
  arguments.option("data", data, "folder or manifest of recordings");
  arguments.option("out", out, "where to write plots, figures, sound and spectrograms; empty: nowhere");
  arguments.option("shown", shown, "recordings that are written there").at_least(0);
  arguments.option("max_seconds", max_seconds, "of every recording").at_least(0.1).unit("s");
  arguments.option("weights", weights, kCodecWeights).one_of({"ema", "online"});
  machine.describe(arguments);
  arguments.alias("o", "out");
  arguments.example("codec eval --from runs/codec --data held-out -o listen");
  if (!arguments.parse(args)) return 0;
  if (from.empty()) throw UsageError("--from is missing: a run folder or a checkpoint");
  if (data.empty()) throw UsageError("--data is missing: a folder or manifest of recordings");
  const c10::Device device = machine.start();

  const OpenedCodec opened = open_codec_with_its_name(from, weights_named(weights), device);
  const Codec& codec = *opened.codec;
  const int rate_hz = static_cast<int>(codec.rate_hz());
  const int64_t quantizers = codec.codes_of_a_group();
  const auto recordings = read_recordings(data, codec, max_seconds);
  Reporter silent;
  std::optional<SampleWriter> writer;
  if (!out.empty()) writer.emplace(out, opened.step, silent);

  std::optional<RatePoint> before;
  CodecEval eval;
  {
    ProgressBar bar("measuring", static_cast<int64_t>(quantizer_counts(quantizers).size()) + 3,
                    "ways of coding");
    if (opened.trained_here)
      before = eval_codec(*open_codec(from, Weights::untrained, device), recordings, quantizers);
    eval = eval_codec_beside_opus(
        codec, recordings,
        [&](size_t i, const at::Tensor& wave) {
          if (!writer || static_cast<int64_t>(i) >= shown) return;
          const EvalRecording& recording = recordings[i];
          writer->audio(recording.name + "_original", recording.wave[0], rate_hz);
          writer->audio(recording.name + "_decoded", wave[0], rate_hz);
          writer->spectrogram_pair(recording.name, recording.wave[0], wave[0], rate_hz);
        },
        [&](const std::string& what, int64_t done, int64_t) { bar.update(done, what); });
    bar.finish();
  }
  const std::string whose =
      opened.trained_here
          ? fmt::format("{} weights, step {}", opened.averaged ? "averaged" : "online", opened.step)
          : codec.kind();
  fmt::print("\n{} ({}) on {} recordings: {:g} frames a second\n\n", opened.path, whose, recordings.size(),
             codec.frames_per_second());
  constexpr size_t kFirstTable = 7;  // what comes after them is by band
  fmt::print(
      "{}\nlog-spectral distance by band, dB\n\n{}\n{}", figures_table(before, eval, 0, kFirstTable, true),
      figures_table(before, eval, kFirstTable, eval.points.front().figures.size() - kFirstTable, false),
      stages_table(eval, codec.groups(), codec.codebook_size()));
  if (writer) {
    const std::filesystem::path folder(out);
    std::filesystem::create_directories(folder);  // nothing may have been shown
    for (const auto& [file, figure] : {std::pair{"rate_quality.png", "extended_stoi"},
                                       {"rate_mel.png", "mel_distance"},
                                       {"rate_stft.png", "stft_distance"},
                                       {"rate_si_sdr.png", "si_sdr"},
                                       {"rate_tones.png", "steady_tones"}})
      write_png((folder / file).string(), rate_quality_plot(eval, figure));
    write_file_atomically((folder / "figures.tsv").string(), tsv(eval));
    fmt::print("\nplots (rate_quality.png), figures.tsv, sound and spectrograms are in {}\n", out);
  } else {
    fmt::print("\n-o FOLDER writes the rate-quality plot, sound and spectrograms\n");
  }
  return 0;
}

}  // namespace melete

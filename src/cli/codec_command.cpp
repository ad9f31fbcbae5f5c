#include "cli/codec_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "cli/arguments.h"
#include "cli/terminal.h"
#include "core/base/error.h"
#include "core/engine.h"
#include "data/base/manifest.h"
#include "generate/load_codec.h"
#include "io/base/audio_file.h"
#include "losses/quality.h"
#include "run/reporter.h"
#include "run/sample_writer.h"

namespace melete {

namespace {

struct Figures {
  double mel_distance = 0, stft_distance = 0, si_sdr = 0;
  std::vector<double> perplexity, share;  // a quantizer
};

struct Recording {
  std::string name;
  at::Tensor wave;  // [1, samples] at the codec's rate
};

std::vector<Recording> read_recordings(const std::string& from, const SoundStreamImpl& codec,
                                       double max_seconds) {
  std::vector<Recording> recordings;
  int64_t skipped = 0;
  for (const ManifestEntry& entry : load_entries(from)) {
    try {
      const auto frames = static_cast<int64_t>(max_seconds * entry.rate_hz);
      const Audio audio = read_audio(entry.path, 0, frames);
      const at::Tensor mono = at::tensor(downmix(audio), at::kFloat).unsqueeze(0);
      recordings.push_back({std::filesystem::path(entry.path).stem().string(),
                            codec.prepare(mono, audio.rate_hz).flatten(0, 1)});
    } catch (const Error& error) {
      fmt::print(stderr, "melete: skipped {}: {}\n", entry.path, error.what());
      ++skipped;
    }
  }
  if (skipped > 0) fmt::print(stderr, "melete: {} recordings were skipped\n", skipped);
  require(!recordings.empty(), "[codec] no usable recordings in {}", from);
  return recordings;
}

// Runs every recording through tokens and back.
Figures measure(SoundStream& codec, const std::vector<Recording>& recordings, const std::string& label,
                SampleWriter* writer, int64_t shown) {
  const at::NoGradGuard no_grad;
  Figures figures;
  std::vector<at::Tensor> all_codes;
  const int rate_hz = static_cast<int>(codec->config().sample_rate_hz);
  ProgressBar bar("measuring " + label, static_cast<int64_t>(recordings.size()), "recordings");
  for (size_t i = 0; i < recordings.size(); ++i) {
    const at::Tensor& real = recordings[i].wave;
    const at::Tensor codes = codec->tokenize(real);
    const at::Tensor fake = codec->decode_codes(codes).flatten(0, 1);
    figures.mel_distance += mel_distance(real, fake, rate_hz).item<double>();
    figures.stft_distance += stft_distance(real, fake).item<double>();
    figures.si_sdr += si_sdr(real, fake).item<double>();
    all_codes.push_back(codes.permute({0, 3, 1, 2}).flatten(2));  // [groups, quantizers, frames]
    if (writer != nullptr && static_cast<int64_t>(i) < shown) {
      writer->audio(recordings[i].name + "_original", real[0], rate_hz);
      writer->audio(recordings[i].name + "_decoded", fake[0], rate_hz);
      writer->spectrogram_pair(recordings[i].name, real[0], fake[0], rate_hz);
    }
    bar.update(static_cast<int64_t>(i) + 1);
  }
  bar.finish();
  const auto count = static_cast<double>(recordings.size());
  figures.mel_distance /= count;
  figures.stft_distance /= count;
  figures.si_sdr /= count;
  const at::Tensor stages = at::cat(all_codes, 2).flatten(0, 1);
  for (int64_t stage = 0; stage < stages.size(0); ++stage) {
    const CodeUse use = code_use(stages[stage], codec->quantizer->codebook_size());
    figures.perplexity.push_back(use.perplexity.item<double>());
    figures.share.push_back(use.share.item<double>());
  }
  return figures;
}

double mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

void print_comparison(const LoadedCodec& codec, const Figures& before, const Figures& after,
                      size_t recordings) {
  fmt::print("\n{} ({} weights, step {}) on {} recordings: {:.2f} kbit/s, {:.0f} frames a second\n\n",
             codec.path, codec.averaged ? "averaged" : "online", codec.step, recordings,
             codec.model->bits_per_second() / 1000, codec.model->frames_per_second());
  TextTable table({"", "untrained", "trained", "better is"});
  const auto row = [&](const char* name, double a, double b, const char* better) {
    table.row({name, fmt::format("{:.3f}", a), fmt::format("{:.3f}", b), better});
  };
  row("mel distance", before.mel_distance, after.mel_distance, "lower");
  row("STFT distance", before.stft_distance, after.stft_distance, "lower");
  row("SI-SDR (dB)", before.si_sdr, after.si_sdr, "higher");
  row("codebook perplexity", mean(before.perplexity), mean(after.perplexity), "higher");
  row("codebook use", mean(before.share), mean(after.share), "higher");
  fmt::print("{}\n", table.text());
  TextTable stages({"quantizer", "perplexity", "codes used"});
  for (size_t i = 0; i < after.perplexity.size(); ++i)
    stages.row({fmt::format("{}", i + 1), fmt::format("{:.1f}", after.perplexity[i]),
                fmt::format("{:.0f} %", 100 * after.share[i])});
  fmt::print("{}", stages.text());
}

int eval_command(const std::vector<std::string>& args) {
  std::string from, data, out;
  int64_t threads = 0, shown = 4;
  double max_seconds = 30;
  Arguments arguments("codec eval", "measures a codec on recordings, beside the same codec before training");
  arguments.option("from", from, "run folder or checkpoint");
  arguments.option("data", data, "folder or manifest of recordings");
  arguments.option("out", out, "where to write sound and pictures; empty: nowhere");
  arguments.option("shown", shown, "recordings that are written there").at_least(0);
  arguments.option("max_seconds", max_seconds, "of every recording").at_least(0.1).unit("s");
  arguments.option("threads", threads, "0: all cores").at_least(0);
  arguments.alias("o", "out");
  arguments.example("codec eval --from runs/codec --data held-out -o listen");
  if (!arguments.parse(args)) return 0;
  if (from.empty()) throw UsageError("--from is missing: a run folder or a checkpoint");
  if (data.empty()) throw UsageError("--data is missing: a folder or manifest of recordings");
  set_threads(static_cast<int>(threads));

  LoadedCodec trained = load_codec(from), untrained = load_codec(from, Weights::untrained);
  const auto recordings = read_recordings(data, *trained.model, max_seconds);
  Reporter silent;
  std::optional<SampleWriter> writer;
  if (!out.empty()) writer.emplace(out, trained.step, silent);
  const Figures before = measure(untrained.model, recordings, "untrained", nullptr, 0);
  const Figures after = measure(trained.model, recordings, "trained", writer ? &*writer : nullptr, shown);
  print_comparison(trained, before, after, recordings.size());
  if (writer) fmt::print("\nsound and spectrograms are in {}\n", out);
  return 0;
}

}  // namespace

int codec_command(const std::vector<std::string>& args) {
  const std::string usage = "melete codec eval --from RUN --data DIR [-o OUT]";
  if (args.empty()) throw UsageError("which? " + usage);
  if (args.front() == "--help" || args.front() == "-h") {
    fmt::print("{}\n", usage);
    return 0;
  }
  if (args.front() != "eval")
    throw UsageError(fmt::format("`codec {}` is not known; there is: {}", args.front(), usage));
  return eval_command({args.begin() + 1, args.end()});
}

}  // namespace melete

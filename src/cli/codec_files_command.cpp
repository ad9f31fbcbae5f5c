// melete codec encode and decode: a file or a whole folder, whose tree is kept.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <iostream>

#include "cli/arguments.h"
#include "cli/codec_command.h"
#include "cli/machine_words.h"
#include "cli/say_weights.h"
#include "cli/terminal.h"
#include "core/base/error.h"
#include "io/base/audio_file.h"
#include "roles/codec_files.h"
#include "roles/codec_stream.h"
#include "roles/open.h"

namespace melete {

namespace {

namespace fs = std::filesystem;

constexpr const char* kEnding = ".tokens";

struct Job {
  std::string in, out;
};

using Rename = std::function<std::string(const std::string& name)>;
using Wanted = std::function<bool(const std::string& path)>;

// One file to a file, or into a folder; a folder to a folder.
std::vector<Job> find_jobs(const std::string& in, const std::string& out, const Wanted& wanted,
                           const Rename& rename, const char* what) {
  require(fs::exists(in), "[codec] {} does not exist", in);
  if (!fs::is_directory(in)) {
    const bool into = fs::is_directory(out) || out.ends_with('/');
    return {{in, into ? (fs::path(out) / rename(fs::path(in).filename().string())).string() : out}};
  }
  require(!fs::exists(out) || fs::is_directory(out),
          "[codec] {} is a folder, so -o must be one, too; {} is a file", in, out);
  std::vector<Job> jobs;
  const fs::path avoid = fs::weakly_canonical(out);
  for (auto at = fs::recursive_directory_iterator(in, fs::directory_options::skip_permission_denied);
       at != fs::recursive_directory_iterator(); ++at) {
    if (at->is_directory() && fs::weakly_canonical(at->path()) == avoid) at.disable_recursion_pending();
    if (!at->is_regular_file() || at->path().filename().string().starts_with('.')) continue;
    if (!wanted(at->path().string())) continue;
    const fs::path place = fs::relative(at->path().parent_path(), in);
    jobs.push_back(
        {at->path().string(),
         (fs::path(out) / place / rename(at->path().filename().string())).lexically_normal().string()});
  }
  require(!jobs.empty(), "[codec] there are no {} in {}", what, in);
  std::sort(jobs.begin(), jobs.end(), [](const Job& a, const Job& b) { return a.in < b.in; });
  return jobs;
}

CodecFiles open_codec_files(const std::string& from, const std::string& weights, double piece_seconds,
                            c10::Device device) {
  const SayWeights say_weights;
  OpenedCodec opened = open_codec_with_its_name(from, weights_named(weights), device);
  return {std::move(opened.codec), opened.name, piece_seconds};
}

// Does what can be done; what cannot is named, and the exit code says so.
int run_jobs(const std::vector<Job>& jobs, bool skip_existing, const std::string& verb,
             const std::function<CodecFiles::Work(const Job&, const CodecFiles::OnProgress&)>& work) {
  const auto begin = std::chrono::steady_clock::now();
  ProgressBar bar(verb, static_cast<int64_t>(jobs.size()), "files");
  double seconds = 0;
  int64_t done = 0, failed = 0, skipped = 0, tried = 0;
  double bits_per_second = 0;
  for (const Job& job : jobs) {
    const std::string name = fs::path(job.in).filename().string();
    bar.update(tried, name);
    ++tried;
    if (skip_existing && fs::exists(job.out)) {
      ++skipped;
      continue;
    }
    try {
      if (fs::path(job.out).has_parent_path()) fs::create_directories(fs::path(job.out).parent_path());
      const CodecFiles::Work result = work(job, [&](double sound_seconds) {
        bar.update(tried - 1, fmt::format("{} {}", name, human_seconds(sound_seconds)));
      });
      seconds += result.sound_seconds;
      bits_per_second = result.bits_per_second;
      ++done;
    } catch (const Error& error) {
      ++failed;
      bar.print(fmt::format("melete: skipped {}: {}", job.in, error.what()));
    } catch (const fs::filesystem_error& error) {
      ++failed;
      bar.print(fmt::format("melete: skipped {}: {}", job.in, error.what()));
    }
  }
  bar.update(tried);
  bar.finish();
  const double elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  fmt::print("{} {} of {} files: {} of sound in {} ({:.1f} times real time), {:.2f} kbit/s\n", verb, done,
             jobs.size(), human_seconds(seconds), human_seconds(elapsed), seconds / std::max(elapsed, 1e-9),
             bits_per_second / 1000);
  if (skipped > 0) fmt::print("{} were there already\n", skipped);
  if (failed > 0)
    fmt::print(stderr, "melete: {} of {} files could not be read or written\n", failed, jobs.size());
  return failed > 0 ? 1 : 0;
}

// The live codec between standard input and standard output; what is said goes to standard error.
int run_stream(const std::string& from, const std::string& weights, CodecStreamConfig config, bool encoding,
               c10::Device device) {
  const SayWeights say_weights;
  const OpenedCodec opened = open_codec_with_its_name(from, weights_named(weights), device);
  const Codec& codec = *opened.codec;
  config.name = opened.name;
  const auto milliseconds = [&](int64_t samples) {
    return 1000.0 * static_cast<double>(samples) / static_cast<double>(codec.rate_hz());
  };
  const Codec::LiveDelay delay = codec.live_delay();
  const int64_t chunk = (config.chunk_frames - 1) * codec.samples_per_frame();
  if (encoding)
    fmt::print(stderr, "{}: {} Hz mono, 16 bits; delay {:g} ms, before the first codes {:g} ms\n",
               opened.name, config.rate_hz > 0 ? config.rate_hz : codec.rate_hz(),
               milliseconds(delay.samples + chunk),
               milliseconds(std::max(delay.first_samples, delay.samples + chunk)));
  else
    fmt::print(stderr, "{}: {} Hz mono, 16 bits; delay {:g} ms\n", opened.name, codec.rate_hz(),
               milliseconds(chunk));
  std::ios::sync_with_stdio(false);
  const int64_t samples = encoding ? encode_stream(codec, std::cin, std::cout, config)
                                   : decode_stream(codec, std::cin, std::cout, config);
  fmt::print(stderr, "{} {} samples\n", encoding ? "encoded" : "decoded", samples);
  return 0;
}

}  // namespace

int codec_encode_command(const std::vector<std::string>& args) {
  std::string in, out, from, weights = "ema";
  int64_t quantizers = 0;
  MachineWords machine;
  double piece_seconds = 20;
  bool skip_existing = false, stream = false;
  CodecStreamConfig live;
  Arguments arguments("codec encode", "recordings to token files");
  arguments.optional_word("recordings", in,
                          "a recording, or a folder whose tree is kept; none with --stream");
  arguments.option("out", out, "token file, or folder of token files");
  arguments.option("from", from, kCodecFrom);
  arguments.option("weights", weights, kCodecWeights).one_of({"ema", "online"});
  arguments.option("quantizers", quantizers, "how many of them to keep; 0: all").at_least(0);
  arguments.option("skip_existing", skip_existing, "leave out recordings whose token file is there");
  arguments.option("piece_seconds", piece_seconds, "how much sound is worked on at a time")
      .at_least(0.1)
      .unit("s");
  machine.describe(arguments);
  arguments.option("stream", stream,
                   "live: 16-bit mono samples from standard input, tokens to standard output");
  arguments.option("rate_hz", live.rate_hz, "with --stream: of those samples; 0: the codec's")
      .at_least(0)
      .unit("Hz");
  arguments.option("chunk_frames", live.chunk_frames, "with --stream: frames of the codec read at a time")
      .at_least(1);
  arguments.alias("o", "out");
  arguments.example("codec encode recordings --from runs/codec -o tokens");
  arguments.example("codec encode talk.flac --from runs/codec -o talk.tokens --quantizers 3");
  if (!arguments.parse(args)) return 0;
  if (from.empty()) throw UsageError("--from is missing: a run folder or a checkpoint");
  if (stream) {
    if (!in.empty() || !out.empty())
      throw UsageError("--stream reads standard input and writes standard output; leave the names out");
    live.quantizers = quantizers;
    return run_stream(from, weights, live, true, machine.start());
  }
  if (in.empty()) throw UsageError("recordings are missing: a recording or a folder, or --stream");
  if (out.empty()) throw UsageError("-o is missing: a token file or a folder");

  const auto jobs = find_jobs(
      in, out, [](const std::string& path) { return is_audio_extension(path); },
      [](const std::string& name) { return name + kEnding; }, "recordings");
  CodecFiles codec = open_codec_files(from, weights, piece_seconds, machine.start());
  const int64_t has = codec.codec().codes_of_a_group();
  if (quantizers > has)
    throw UsageError(fmt::format("--quantizers {}: {} has only {}", quantizers, codec.name(), has));
  if (!codec.codec().bounded())
    fmt::print(stderr,
               "note: this codec looks back without limit: every file is encoded in one piece, and memory "
               "grows with its length\n");
  return run_jobs(jobs, skip_existing, "encoded",
                  [&](const Job& job, const CodecFiles::OnProgress& on_progress) {
                    return codec.encode(job.in, job.out, quantizers, on_progress);
                  });
}

int codec_decode_command(const std::vector<std::string>& args) {
  std::string in, out, from, format = "wav", weights = "ema";
  MachineWords machine;
  double piece_seconds = 20;
  bool skip_existing = false, stream = false;
  CodecStreamConfig live;
  Arguments arguments("codec decode", "token files to recordings");
  arguments.optional_word("tokens", in, "a token file, or a folder whose tree is kept; none with --stream");
  arguments.option("out", out, "recording, or folder of recordings");
  arguments.option("from", from, kCodecFrom);
  arguments.option("weights", weights, kCodecWeights).one_of({"ema", "online"});
  arguments.option("format", format, "of recordings in a folder").one_of({"wav", "flac", "ogg"});
  arguments.option("skip_existing", skip_existing, "leave out token files whose recording is there");
  arguments.option("piece_seconds", piece_seconds, "how much sound is worked on at a time")
      .at_least(0.1)
      .unit("s");
  machine.describe(arguments);
  arguments.option("stream", stream,
                   "live: tokens from standard input, 16-bit mono samples to standard output");
  arguments.option("chunk_frames", live.chunk_frames, "with --stream: frames decoded at a time").at_least(1);
  arguments.alias("o", "out");
  arguments.example("codec decode tokens --from runs/codec -o decoded --format flac");
  if (!arguments.parse(args)) return 0;
  if (from.empty()) throw UsageError("--from is missing: a run folder or a checkpoint");
  if (stream) {
    if (!in.empty() || !out.empty())
      throw UsageError("--stream reads standard input and writes standard output; leave the names out");
    return run_stream(from, weights, live, false, machine.start());
  }
  if (in.empty()) throw UsageError("tokens are missing: a token file or a folder, or --stream");
  if (out.empty()) throw UsageError("-o is missing: a recording or a folder");

  const auto jobs = find_jobs(
      in, out, [](const std::string& path) { return path.ends_with(kEnding); },
      [&](const std::string& name) {
        const std::string stem = name.ends_with(kEnding) ? name.substr(0, name.size() - 7) : name;
        return fs::path(stem).extension() == "." + format ? stem : stem + "." + format;
      },
      "token files (.tokens)");
  CodecFiles codec = open_codec_files(from, weights, piece_seconds, machine.start());
  return run_jobs(jobs, skip_existing, "decoded",
                  [&](const Job& job, const CodecFiles::OnProgress& on_progress) {
                    return codec.decode(job.in, job.out, on_progress);
                  });
}

}  // namespace melete

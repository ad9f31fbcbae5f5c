#include <fmt/format.h>

#include <cmath>
#include <filesystem>

#include "cli/arguments.h"
#include "cli/codec_command.h"
#include "cli/machine_words.h"
#include "cli/say_weights.h"
#include "cli/terminal.h"
#include "core/base/error.h"
#include "io/base/audio_file.h"
#include "io/base/opus.h"
#include "io/resample_audio.h"
#include "measure/codec_eval.h"
#include "roles/open.h"

namespace melete {

namespace fs = std::filesystem;

namespace {

constexpr double kPieceSeconds = 20;
constexpr int kOpusKilobits[] = {6, 12, 24};

std::span<const float> values_of(const at::Tensor& wave) {
  return {wave.data_ptr<float>(), static_cast<size_t>(wave.numel())};
}

}  // namespace

void describe(Schema& s, CodecCompareConfig& c) {
  s.option("from", c.from, kCodecFrom);
  s.option("recording", c.recording, "recording to code and decode, at any rate");
  s.option("max_seconds", c.max_seconds, "of it").at_least(0.1).unit("s");
  s.option("weights", c.weights, kCodecWeights).one_of({"ema", "online"});
}

int codec_compare_command(const std::vector<std::string>& args) {
  CodecCompareConfig config;
  Schema schema = schema_of(config);
  std::string out;
  MachineWords machine;
  Arguments arguments("codec compare",
                      "one recording with every number of quantizers, and through Opus: a sound file each");
  arguments.option("out", out, "folder to write to");
  machine.describe(arguments);
  arguments.alias("o", "out");
  arguments.settings(schema);
  arguments.example("codec compare --from runs/codec --recording talk.wav -o compare");
  if (!arguments.parse(args)) return 0;
  schema.check();
  if (config.from.empty()) throw UsageError("--from is missing: a run folder or a checkpoint");
  if (config.recording.empty()) throw UsageError("--recording is missing");
  if (out.empty()) throw UsageError("-o is missing: a folder");

  const SayWeights say_weights;
  const OpenedCodec opened =
      open_codec_with_its_name(config.from, weights_named(config.weights), machine.start());
  const Codec& codec = *opened.codec;
  const int rate_hz = static_cast<int>(codec.rate_hz());
  const AudioInfo info = probe_audio(config.recording);
  const Audio audio =
      read_audio(config.recording, 0, static_cast<int64_t>(std::ceil(config.max_seconds * info.rate_hz)));
  const at::Tensor wave =
      resample_audio(at::tensor(downmix(audio), at::kFloat).unsqueeze(0), audio.rate_hz, rate_hz)[0]
          .contiguous();
  fs::create_directories(out);
  const auto write = [&](const std::string& name, std::span<const float> samples) {
    write_audio((fs::path(out) / (name + ".flac")).string(), samples, rate_hz, 1);
  };
  write("original", values_of(wave));

  const auto encoder = codec.sound_to_codes(kPieceSeconds);
  const at::Tensor first = encoder->push(values_of(wave));
  const at::Tensor codes = at::cat({first, encoder->finish()});  // [frames, groups, codes of a group]
  const auto counts = quantizer_counts(codec.codes_of_a_group());
  ProgressBar bar("decoding", static_cast<int64_t>(counts.size() + std::size(kOpusKilobits)),
                  "ways of coding");
  int64_t done = 0;
  for (const int64_t count : counts) {
    const auto decoder = codec.codes_to_sound(kPieceSeconds);
    std::vector<float> sound = decoder->push(codes.narrow(2, 0, count));
    const std::vector<float> rest = decoder->finish();
    sound.insert(sound.end(), rest.begin(), rest.end());
    sound.resize(static_cast<size_t>(wave.numel()));  // the last frame may reach beyond
    const double bits = codec.frames_per_second() * static_cast<double>(codec.groups() * count) *
                        std::log2(static_cast<double>(codec.codebook_size()));
    write(fmt::format("quantizers_{:02}_at_{:.1f}_kbps", count, bits / 1000), sound);
    bar.update(++done);
  }
  for (const int kilobits : kOpusKilobits) {
    write(fmt::format("opus_{:02}_kbps", kilobits),
          through_opus(values_of(wave), rate_hz, kilobits * 1000).samples);
    bar.update(++done);
  }
  bar.finish();
  fmt::print("{}: {:.2f} s of {} with {} of {} quantizers and through Opus\n", out,
             static_cast<double>(wave.numel()) / rate_hz, config.recording,
             fmt::format("1 to {}", counts.back()), opened.name);
  return 0;
}

}  // namespace melete

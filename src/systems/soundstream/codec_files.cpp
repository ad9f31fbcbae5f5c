#include "systems/soundstream/codec_files.h"

#include <algorithm>
#include <filesystem>

#include "core/base/error.h"
#include "io/base/audio_file.h"
#include "io/base/resample_stream.h"

namespace melete {

namespace {

constexpr int64_t kReadFrames = 1 << 16;

std::string name_of(const LoadedCodec& codec, const std::string& given) {
  std::filesystem::path path(given);
  if (!path.has_filename()) path = path.parent_path();
  const std::string stem =
      std::filesystem::is_directory(given) ? path.filename().string() : path.stem().string();
  return fmt::format("{} step {}", stem.substr(0, 40), codec.step);
}

}  // namespace

CodecFiles::CodecFiles(const std::string& run_or_checkpoint, double piece_seconds)
    : codec_(load_codec(run_or_checkpoint)),
      identity_(codec_identity(*codec_.model)),
      name_(name_of(codec_, run_or_checkpoint)),
      layout_(piece_layout(codec_.model->config(), piece_seconds)) {}

CodecFiles::Work CodecFiles::encode(const std::string& recording, const std::string& tokens,
                                    int64_t quantizers, const OnProgress& on_progress) {
  const SoundStreamConfig& config = codec_.model->config();
  const int64_t all = config.quantizer.quantizers, kept = quantizers > 0 ? quantizers : all;
  require(kept <= all, "[codec] the model has {} quantizers, {} were asked for", all, kept);
  AudioReader reader(recording);
  const AudioInfo info = reader.info();

  TokenHeader header;
  header.model = identity_;
  header.model_name = name_;
  header.rate_hz = config.sample_rate_hz;
  header.samples_per_frame = codec_.model->samples_per_frame();
  header.groups = config.quantizer.groups;
  header.quantizers = kept * header.groups;
  header.codebook_size = codec_.model->quantizer->codebook_size();
  header.source_rate_hz = info.rate_hz;
  TokenWriter writer(tokens, header);
  PieceEncoder encoder(codec_.model, layout_);
  ResampleStream resampler(info.rate_hz, static_cast<int>(config.sample_rate_hz));
  const auto write = [&](const at::Tensor& codes) {
    if (codes.size(0) == 0) return;
    const at::Tensor some = codes.narrow(2, 0, kept).contiguous();
    writer.add({some.data_ptr<int64_t>(), static_cast<size_t>(some.numel())});
  };

  Audio piece{std::vector<float>(static_cast<size_t>(kReadFrames * info.channels)), info.rate_hz,
              info.channels};
  const std::vector<float> whole = piece.samples;
  int64_t read = 0;
  for (;;) {
    piece.samples.resize(whole.size());
    const int64_t got = reader.read(piece.samples);
    if (got == 0) break;
    piece.samples.resize(static_cast<size_t>(got * info.channels));
    read += got;
    write(encoder.push(resampler.push(downmix(piece))));
    if (on_progress) on_progress(static_cast<double>(read) / info.rate_hz);
  }
  // The length of an MP3 may be an estimate.
  require(read == info.frames || info.format.starts_with("MP"),
          "[audio] {} ends at frame {} but its header says {}; the file may be cut off", recording, read,
          info.frames);
  write(encoder.push(resampler.finish()));
  write(encoder.finish());
  require(encoder.samples() > 0, "[audio] {} holds no sound", recording);
  writer.commit(encoder.samples());

  Work work;
  work.sound_seconds = static_cast<double>(encoder.samples()) / static_cast<double>(config.sample_rate_hz);
  work.bits_per_second =
      codec_.model->frames_per_second() * static_cast<double>(header.quantizers) * header.bits_per_code();
  return work;
}

CodecFiles::Work CodecFiles::decode(const std::string& tokens, const std::string& recording,
                                    const OnProgress& on_progress) {
  const TokenFile file(tokens);
  const TokenHeader& header = file.header();
  const SoundStreamConfig& config = codec_.model->config();
  require(header.model == identity_,
          "[{}] was encoded with `{}` ({}), the model given is `{}` ({}): another model makes noise of these "
          "tokens; try --from the one that encoded it",
          tokens, header.model_name, header.model.substr(0, 12), name_, identity_.substr(0, 12));
  require(header.rate_hz == config.sample_rate_hz &&
              header.samples_per_frame == codec_.model->samples_per_frame() &&
              header.groups == config.quantizer.groups &&
              header.quantizers <= config.quantizer.quantizers * header.groups &&
              header.codebook_size == codec_.model->quantizer->codebook_size(),
          "[{}] damaged: its header does not describe the model that it names", tokens);
  AudioWriter writer(recording, static_cast<int>(config.sample_rate_hz), 1, file.samples());
  PieceDecoder decoder(codec_.model, layout_);
  int64_t left = file.samples();
  const auto write = [&](const std::vector<float>& samples) {
    const auto some = std::min<int64_t>(left, static_cast<int64_t>(samples.size()));
    writer.write(std::span(samples).first(static_cast<size_t>(some)));
    left -= some;
    if (on_progress)
      on_progress(static_cast<double>(file.samples() - left) / static_cast<double>(config.sample_rate_hz));
  };
  constexpr int64_t kFramesAtOnce = 1024;
  const int64_t stages = header.quantizers / header.groups;
  for (int64_t begin = 0; begin < file.frames(); begin += kFramesAtOnce) {
    const int64_t count = std::min(kFramesAtOnce, file.frames() - begin);
    const std::vector<int64_t> codes = file.codes(begin, count);
    write(decoder.push(at::tensor(codes, at::kLong).view({count, header.groups, stages})));
  }
  write(decoder.finish());
  writer.commit();
  return {file.seconds(), codec_.model->frames_per_second() * static_cast<double>(header.quantizers) *
                              header.bits_per_code()};
}

}  // namespace melete

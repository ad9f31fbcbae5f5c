#include "roles/codec_files.h"

#include <algorithm>

#include "core/base/error.h"
#include "io/base/audio_file.h"
#include "io/base/resample_stream.h"

namespace melete {

namespace {

constexpr int64_t kReadFrames = 1 << 16;
constexpr int64_t kCodeFramesAtOnce = 1024;

double bits_per_second(const Codec& codec, const TokenHeader& header) {
  return codec.frames_per_second() * static_cast<double>(header.quantizers) * header.bits_per_code();
}

}  // namespace

CodecFiles::CodecFiles(std::shared_ptr<const Codec> codec, std::string name, double piece_seconds)
    : codec_(std::move(codec)), name_(std::move(name)), piece_seconds_(piece_seconds) {}

CodecFiles::Work CodecFiles::encode(const std::string& recording, const std::string& tokens,
                                    int64_t quantizers, const OnProgress& on_progress) {
  const int64_t all = codec_->codes_of_a_group(), kept = quantizers > 0 ? quantizers : all;
  require(kept <= all, "[codec] the model has {} quantizers, {} were asked for", all, kept);
  AudioReader reader(recording);
  const AudioInfo info = reader.info();

  TokenHeader header;
  header.model = codec_->identity();
  header.model_name = name_;
  header.rate_hz = codec_->rate_hz();
  header.samples_per_frame = codec_->samples_per_frame();
  header.groups = codec_->groups();
  header.quantizers = kept * header.groups;
  header.codebook_size = codec_->codebook_size();
  header.source_rate_hz = info.rate_hz;
  TokenWriter writer(tokens, header);
  const auto encoder = codec_->sound_to_codes(piece_seconds_);
  ResampleStream resampler(info.rate_hz, static_cast<int>(codec_->rate_hz()));
  const auto write = [&](const at::Tensor& codes) {
    if (codes.size(0) == 0) return;
    const at::Tensor some = codes.narrow(2, 0, kept).contiguous();
    writer.add({some.data_ptr<int64_t>(), static_cast<size_t>(some.numel())});
  };
  int64_t samples = 0;
  const auto push = [&](const std::vector<float>& sound) {
    samples += static_cast<int64_t>(sound.size());
    write(encoder->push(sound));
  };

  const auto most = static_cast<size_t>(kReadFrames * info.channels);
  Audio piece{{}, info.rate_hz, info.channels};
  int64_t read = 0;
  for (;;) {
    piece.samples.resize(most);
    const int64_t got = reader.read(piece.samples);
    if (got == 0) break;
    piece.samples.resize(static_cast<size_t>(got * info.channels));
    read += got;
    push(resampler.push(downmix(piece)));
    if (on_progress) on_progress(static_cast<double>(read) / info.rate_hz);
  }
  // The length of an MP3 may be an estimate.
  require(read == info.frames || info.format.starts_with("MP"),
          "[audio] {} ends at frame {} but its header says {}; the file may be cut off", recording, read,
          info.frames);
  push(resampler.finish());
  write(encoder->finish());
  require(samples > 0, "[audio] {} holds no sound", recording);
  writer.commit(samples);
  return {static_cast<double>(samples) / static_cast<double>(codec_->rate_hz()),
          bits_per_second(*codec_, header)};
}

CodecFiles::Work CodecFiles::decode(const std::string& tokens, const std::string& recording,
                                    const OnProgress& on_progress) {
  const TokenFile file(tokens);
  const TokenHeader& header = file.header();
  require(codec_->answers_to(header.model),
          "[{}] was encoded with `{}` ({}), the model given is `{}` ({}): another model makes noise of these "
          "tokens; try --from the one that encoded it",
          tokens, header.model_name, header.model.substr(0, 12), name_, codec_->identity().substr(0, 12));
  require(header.rate_hz == codec_->rate_hz() && header.samples_per_frame == codec_->samples_per_frame() &&
              header.groups == codec_->groups() && header.quantizers <= codec_->quantizers() &&
              header.codebook_size == codec_->codebook_size(),
          "[{}] damaged: its header does not describe the model that it names", tokens);
  const auto rate_hz = static_cast<int>(codec_->rate_hz());
  AudioWriter writer(recording, rate_hz, 1, file.samples());
  const auto decoder = codec_->codes_to_sound(piece_seconds_);
  int64_t left = file.samples();
  const auto write = [&](const std::vector<float>& samples) {
    const auto some = std::min<int64_t>(left, static_cast<int64_t>(samples.size()));
    writer.write(std::span(samples).first(static_cast<size_t>(some)));
    left -= some;
    if (on_progress) on_progress(static_cast<double>(file.samples() - left) / rate_hz);
  };
  const int64_t kept = header.quantizers / header.groups;
  for (int64_t begin = 0; begin < file.frames(); begin += kCodeFramesAtOnce) {
    const int64_t count = std::min(kCodeFramesAtOnce, file.frames() - begin);
    const std::vector<int64_t> codes = file.codes(begin, count);
    write(decoder->push(at::tensor(codes, at::kLong).view({count, header.groups, kept})));
  }
  write(decoder->finish());
  writer.commit();
  return {file.seconds(), bits_per_second(*codec_, header)};
}

}  // namespace melete

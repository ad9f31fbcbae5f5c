#include "roles/codec_stream.h"

#include <algorithm>
#include <cmath>

#include "core/base/error.h"
#include "io/base/resample_stream.h"
#include "io/base/token_stream.h"

namespace melete {

namespace {

constexpr float kFullScale = 32768.0f;

// Up to `most` samples; fewer only at the end of the stream.
std::vector<float> read_samples(std::istream& in, int64_t most) {
  std::string bytes(static_cast<size_t>(2 * most), '\0');
  in.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  const auto got = static_cast<size_t>(in.gcount());
  require(got % 2 == 0, "[codec stream] expected samples of 16 bits, the input ends within one");
  std::vector<float> samples(got / 2);
  for (size_t i = 0; i < samples.size(); ++i) {
    const auto low = static_cast<unsigned char>(bytes[2 * i]),
               high = static_cast<unsigned char>(bytes[2 * i + 1]);
    samples[i] =
        static_cast<float>(static_cast<int16_t>(static_cast<uint16_t>(low | high << 8))) / kFullScale;
  }
  return samples;
}

void write_samples(std::ostream& out, const std::vector<float>& samples) {
  std::string bytes;
  bytes.reserve(2 * samples.size());
  for (const float sample : samples) {
    const float level = std::clamp(std::round(sample * kFullScale), -kFullScale, kFullScale - 1);
    const auto value = static_cast<uint16_t>(static_cast<int16_t>(level));
    bytes += static_cast<char>(value & 0xff);
    bytes += static_cast<char>(value >> 8);
  }
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size())).flush();
  require(out.good(), "[codec stream] cannot write: the reader has gone");
}

}  // namespace

int64_t encode_stream(const Codec& codec, std::istream& in, std::ostream& out,
                      const CodecStreamConfig& config) {
  const int64_t all = codec.codes_of_a_group(), kept = config.quantizers > 0 ? config.quantizers : all;
  require(kept <= all, "[codec stream] the model has {} quantizers, {} were asked for", all, kept);
  const int64_t rate_hz = config.rate_hz > 0 ? config.rate_hz : codec.rate_hz();
  TokenHeader header;
  header.model = codec.identity();
  header.model_name = config.name;
  header.rate_hz = codec.rate_hz();
  header.samples_per_frame = codec.samples_per_frame();
  header.groups = codec.groups();
  header.quantizers = kept * header.groups;
  header.codebook_size = codec.codebook_size();
  header.source_rate_hz = rate_hz;
  const auto encoder = codec.live_sound_to_codes();
  TokenStreamWriter writer(out, header);
  ResampleStream resampler(static_cast<int>(rate_hz), static_cast<int>(codec.rate_hz()));
  const auto write = [&](const at::Tensor& codes) {
    if (codes.size(0) == 0) return;
    const at::Tensor some = codes.narrow(2, 0, kept).contiguous();
    writer.add({some.data_ptr<int64_t>(), static_cast<size_t>(some.numel())});
  };
  const int64_t chunk =
      std::max<int64_t>(1, config.chunk_frames * codec.samples_per_frame() * rate_hz / codec.rate_hz());
  int64_t samples = 0;
  while (in.good()) {
    const std::vector<float> sound = read_samples(in, chunk);
    samples += static_cast<int64_t>(sound.size());
    write(encoder->push(rate_hz == codec.rate_hz() ? sound : resampler.push(sound)));
  }
  if (rate_hz != codec.rate_hz()) write(encoder->push(resampler.finish()));
  write(encoder->finish());
  return samples;
}

int64_t decode_stream(const Codec& codec, std::istream& in, std::ostream& out,
                      const CodecStreamConfig& config) {
  TokenStreamReader reader(in);
  const TokenHeader& header = reader.header();
  require(
      codec.answers_to(header.model),
      "[token stream] was encoded with `{}` ({}), the model given is `{}` ({}): another model makes noise of "
      "these tokens; try --from the one that encoded it",
      header.model_name, header.model.substr(0, 12), config.name, codec.identity().substr(0, 12));
  require(header.rate_hz == codec.rate_hz() && header.samples_per_frame == codec.samples_per_frame() &&
              header.groups == codec.groups() && header.quantizers <= codec.quantizers() &&
              header.codebook_size == codec.codebook_size(),
          "[token stream] damaged: its header does not describe the model that it names");
  const auto decoder = codec.live_codes_to_sound();
  int64_t samples = 0;
  const auto write = [&](const std::vector<float>& sound) {
    samples += static_cast<int64_t>(sound.size());
    if (!sound.empty()) write_samples(out, sound);
  };
  std::vector<int64_t> held;
  for (;;) {
    const std::vector<int64_t> codes = reader.next();
    held.insert(held.end(), codes.begin(), codes.end());
    const int64_t frames = static_cast<int64_t>(held.size()) / header.quantizers;
    if (frames > 0 && (codes.empty() || frames >= config.chunk_frames)) {
      write(decoder->push(at::tensor(held, at::kLong).view({frames, header.groups, -1})));
      held.clear();
    }
    if (codes.empty()) break;
  }
  write(decoder->finish());
  return samples;
}

}  // namespace melete

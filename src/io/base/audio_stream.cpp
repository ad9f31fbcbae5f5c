#include "io/base/audio_stream.h"

#include <sndfile.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "core/base/error.h"

namespace melete {

namespace {

constexpr uint32_t kUnknownBytes = 0xffffffff;  // where a header says how many follow
constexpr double kOggPageMilliseconds = 100;    // of sound that waits for its page to be full

std::string wave_header(int rate_hz, uint32_t data_bytes) {
  std::string out;
  const auto number = [&out](uint32_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i));
  };
  const auto rate = static_cast<uint32_t>(rate_hz);
  out += "RIFF";
  number(data_bytes == kUnknownBytes ? kUnknownBytes : 36 + data_bytes, 4);
  out += "WAVEfmt ";
  number(16, 4);
  number(1, 2);  // PCM
  number(1, 2);  // channels
  number(rate, 4);
  number(rate * 2, 4);  // bytes a second
  number(2, 2);         // bytes a frame
  number(16, 2);        // bits
  out += "data";
  number(data_bytes, 4);
  return out;
}

void add_wave_samples(std::span<const float> mono, std::string& out) {
  out.reserve(out.size() + mono.size() * 2);
  for (const float sample : mono) {
    const auto value = static_cast<uint16_t>(std::lround(std::clamp(sample, -1.0f, 1.0f) * 32767));
    out += static_cast<char>(value & 0xff);
    out += static_cast<char>(value >> 8);
  }
}

}  // namespace

// libsndfile writing to a file that is sent on as it grows. What it would change in parts that are gone (the
// length in FLAC's header, at the end) stays as it was: unknown, which both formats allow.
struct AudioStream::Encoder {
  std::string fresh;  // bytes that have not been taken yet
  sf_count_t taken = 0, at = 0;
  SNDFILE* file = nullptr;
  std::vector<float> chunk;

  ~Encoder() {
    if (file) sf_close(file);
  }

  sf_count_t size() const { return taken + static_cast<sf_count_t>(fresh.size()); }

  static Encoder& of(void* self) { return *static_cast<Encoder*>(self); }
  static sf_count_t length(void* self) { return of(self).size(); }
  static sf_count_t tell(void* self) { return of(self).at; }
  static sf_count_t seek(sf_count_t offset, int whence, void* self) {
    Encoder& e = of(self);
    const sf_count_t from = whence == SEEK_SET ? 0 : whence == SEEK_CUR ? e.at : e.size();
    return e.at = std::clamp<sf_count_t>(from + offset, 0, e.size());
  }
  static sf_count_t read(void*, sf_count_t, void*) { return 0; }
  static sf_count_t write(const void* data, sf_count_t count, void* self) {
    Encoder& e = of(self);
    const auto* bytes = static_cast<const char*>(data);
    const sf_count_t gone = std::clamp<sf_count_t>(e.taken - e.at, 0, count);
    const auto place = static_cast<size_t>(e.at + gone - e.taken);
    const auto left = static_cast<size_t>(count - gone);
    if (left > 0) {
      if (e.fresh.size() < place + left) e.fresh.resize(place + left);
      std::memcpy(e.fresh.data() + place, bytes + gone, left);
    }
    e.at += count;
    return count;
  }

  std::string take() {
    taken += static_cast<sf_count_t>(fresh.size());
    return std::exchange(fresh, {});
  }
};

AudioStream::AudioStream(const std::string& format, int rate_hz) {
  if (format == "wav") {
    pending_ = wave_header(rate_hz, kUnknownBytes);
    return;
  }
  require(format == "flac" || format == "opus", "[audio] expected wav, flac or opus, got {}", format);
  SF_INFO info{};
  info.samplerate = rate_hz;
  info.channels = 1;
  info.format = format == "flac" ? SF_FORMAT_FLAC | SF_FORMAT_PCM_16 : SF_FORMAT_OGG | SF_FORMAT_OPUS;
  require(sf_format_check(&info) != 0, "[audio] {} cannot hold sound at {} Hz; try wav", format, rate_hz);
  encoder_ = std::make_unique<Encoder>();
  SF_VIRTUAL_IO io{&Encoder::length, &Encoder::seek, &Encoder::read, &Encoder::write, &Encoder::tell};
  encoder_->file = sf_open_virtual(&io, SFM_WRITE, &info, encoder_.get());
  require(encoder_->file != nullptr, "[audio] {} at {} Hz cannot be written", format, rate_hz);
  sf_command(encoder_->file, SFC_SET_CLIPPING, nullptr, SF_TRUE);
  double latency = kOggPageMilliseconds;
  if (format == "opus") sf_command(encoder_->file, SFC_SET_OGG_PAGE_LATENCY_MS, &latency, sizeof latency);
}

AudioStream::~AudioStream() = default;
AudioStream::AudioStream(AudioStream&&) noexcept = default;

std::string AudioStream::push(std::span<const float> mono) {
  if (!encoder_) {
    add_wave_samples(mono, pending_);
    return std::exchange(pending_, {});
  }
  constexpr size_t kAtOnce = 4096;  // the encoders keep a whole call on their stacks
  for (size_t begin = 0; begin < mono.size(); begin += kAtOnce) {
    const auto piece = mono.subspan(begin, std::min(kAtOnce, mono.size() - begin));
    encoder_->chunk.assign(piece.begin(), piece.end());
    for (float& sample : encoder_->chunk) sample = std::clamp(sample, -1.0f, 1.0f);
    const auto count = static_cast<sf_count_t>(piece.size());
    require(sf_write_float(encoder_->file, encoder_->chunk.data(), count) == count,
            "[audio] the encoder refused its samples: {}", sf_strerror(encoder_->file));
  }
  return encoder_->take();
}

std::string AudioStream::finish() {
  if (!encoder_) return std::exchange(pending_, {});
  const int code = sf_close(std::exchange(encoder_->file, nullptr));
  require(code == 0, "[audio] the encoder did not end well: {}", sf_error_number(code));
  return encoder_->take();
}

std::string wave_bytes(std::span<const float> mono, int rate_hz) {
  std::string out = wave_header(rate_hz, static_cast<uint32_t>(mono.size() * 2));
  add_wave_samples(mono, out);
  return out;
}

}  // namespace melete

// Sound as bytes of a file while it is still being made: for those who listen before its end is known.
#pragma once

#include <memory>
#include <span>
#include <string>

namespace melete {

class AudioStream {
 public:
  // format: "wav" (its header leaves the length open, as players of streams expect it), "flac" (likewise) or
  // "opus" (in Ogg); mono, 16 bits. An Error where the format cannot hold that rate.
  AudioStream(const std::string& format, int rate_hz);
  ~AudioStream();
  AudioStream(AudioStream&&) noexcept;

  // What can be sent now: everything for "wav", whole blocks for the others.
  std::string push(std::span<const float> mono);
  std::string finish();

 private:
  struct Encoder;
  std::string pending_;               // bytes that were not given out yet
  std::unique_ptr<Encoder> encoder_;  // none: wav
};

// A whole wave file of 16 bits; samples are clamped to [-1, 1].
std::string wave_bytes(std::span<const float> mono, int rate_hz);

}  // namespace melete

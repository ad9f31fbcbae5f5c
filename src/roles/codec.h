// A codec behind one face: sound to codes and back. Coarse and fine transformers and generation take
// SoundStream or EnCodec alike through it.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <string>

namespace melete {

class Codec {
 public:
  virtual ~Codec() = default;

  virtual std::string kind() const = 0;  // "soundstream", "encodec"
  virtual int64_t rate_hz() const = 0;   // of the audio that encode() takes and decode() gives
  virtual int64_t samples_per_frame() const = 0;
  virtual int64_t codebook_size() const = 0;          // codes are 0 .. codebook_size - 1
  virtual int64_t quantizers() const = 0;             // codes a frame, coarse to fine
  virtual const std::string& identity() const = 0;    // hash of weights and configuration
  virtual int64_t frames(int64_t samples) const = 0;  // how many frames encode() gives for that many samples

  // Both without gradient, whatever the caller's mode is, and callable from several threads at once.
  // audio [batch, samples] -> codes [batch, frames, quantizers] int64
  virtual at::Tensor encode(const at::Tensor& audio) const = 0;
  // codes [batch, frames, 1 .. quantizers] -> audio [batch, frames * samples_per_frame]
  virtual at::Tensor decode(const at::Tensor& codes) const = 0;

  // The same at any rate.
  at::Tensor encode_at(const at::Tensor& audio, int64_t audio_rate_hz) const;

  double frames_per_second() const {
    return static_cast<double>(rate_hz()) / static_cast<double>(samples_per_frame());
  }
};

}  // namespace melete

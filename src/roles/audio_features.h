// Sound to frames that a model can work on, and back, behind one face: mel frames with a vocoder, or the latents
// of a codec.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <string>

namespace melete {

class AudioFeatures {
 public:
  virtual ~AudioFeatures() = default;

  virtual std::string kind() const = 0;     // "mel", "encodec", "soundstream"
  virtual int64_t rate_hz() const = 0;      // of the sound that encode() takes and decode() gives
  virtual int64_t dim() const = 0;          // of a frame
  virtual double frames_per_second() const = 0;
  virtual const std::string& identity() const = 0;  // hash of weights and configuration

  // Both without gradient, whatever the caller's mode is, and callable from several threads at once.
  virtual at::Tensor encode(const at::Tensor& audio) const = 0;   // [batch, samples] -> [batch, frames, dim]
  virtual at::Tensor decode(const at::Tensor& frames) const = 0;  // [batch, frames, dim] -> [batch, samples]
};

}  // namespace melete

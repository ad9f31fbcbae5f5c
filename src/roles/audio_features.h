// Sound as frames of real numbers and back: what a flow-matching model is taught to make.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <string>

#include "roles/placed.h"

namespace melete {

class AudioFeatures : public Placed {
 public:
  virtual std::string kind() const = 0;  // "mel", "encodec"
  virtual int64_t rate_hz() const = 0;   // of the audio that encode() takes and decode() gives
  virtual int64_t dim() const = 0;       // values of a frame
  virtual int64_t samples_per_frame() const = 0;
  virtual int64_t frames(int64_t samples) const = 0;  // how many encode() gives for that many samples
  virtual const std::string& identity() const = 0;    // hash of weights and configuration

  // Both without gradient, whatever the caller's mode is, and callable from several threads at once.
  // audio [batch, samples] -> frames [batch, frames, dim] float32
  virtual at::Tensor encode(const at::Tensor& audio) const = 0;
  virtual at::Tensor decode(const at::Tensor& frames) const = 0;  // -> audio [batch, samples]

  double frames_per_second() const {
    return static_cast<double>(rate_hz()) / static_cast<double>(samples_per_frame());
  }
};

}  // namespace melete

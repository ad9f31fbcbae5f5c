// How sound enters and leaves a SoundStream that does not convolve single samples: as frames of values, which
// come to about one, at a low rate.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <memory>

namespace melete {

struct SoundStreamConfig;

class SoundFront {
 public:
  virtual ~SoundFront() = default;

  struct Frames {
    at::Tensor values;  // [rows, frames, values()]: what coding keeps of the sound
    at::Tensor seen;    // [rows, frames, seen()]: what the convolutions are shown
  };
  virtual int64_t values() const = 0;
  virtual int64_t seen() const = 0;
  // wave [rows, whole frames + ahead]: the last `ahead` samples are only looked at, silence follows. before:
  // what it keeps of the chunk before this one, undefined at the beginning of a sound; null: not asked for.
  virtual Frames analyse(const at::Tensor& wave, int64_t ahead, at::Tensor* before) const = 0;
  // values [rows, frames, values()] -> wave [rows, samples]. first: the number of the first frame.
  virtual at::Tensor synthesise(const at::Tensor& values, int64_t first, at::Tensor* before) const = 0;
  // The linear way around all layers, at first. encoder [dim, fronts * channels * values], decoder the other
  // way round; a vector stands for so many frames of the front.
  virtual void start_shortcuts(at::Tensor encoder, at::Tensor decoder, int64_t channels) const = 0;
  // Of how many numbers a frame may have, training draws the first one's; 0: numbers say nothing.
  virtual int64_t first_frames() const { return 0; }
};

// Null for convolutions over samples.
std::shared_ptr<const SoundFront> make_front(const SoundStreamConfig& config);

}  // namespace melete

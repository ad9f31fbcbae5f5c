// A lapped transform (MDCT, Princen and Bradley 1986, with its sine counterpart): a wave as frames of `hop`
// coefficients, each over a window of two hops, and back without a seam.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>

namespace melete {

class LappedTransform {
 public:
  explicit LappedTransform(int64_t hop);

  struct Frames {
    at::Tensor cosines, sines;  // [rows, frames, hop] each; the cosines alone give the wave back
  };
  // wave [rows, (frames + 1) * hop]: frame t sees hops t and t + 1.
  Frames analyse(const at::Tensor& wave) const;
  // cosines [rows, frames, hop] -> wave [rows, frames * hop]. Of the first hop, what a frame before it would
  // add is missing; `last_half` of that frame [rows, hop] may be given, and is set to that of the last frame.
  at::Tensor synthesise(const at::Tensor& cosines, at::Tensor* last_half = nullptr) const;

  int64_t hop() const { return hop_; }

 private:
  int64_t hop_;
  at::Tensor basis_;  // [2 * hop, 2 * hop]: columns of cosines, then of sines, windowed
};

// sign(x) sqrt(|x|) and back, with a finite slope at 0: so that quiet coefficients are neither lost beside
// loud ones in a network's input nor buried in their quantization noise.
at::Tensor compress(const at::Tensor& x);
at::Tensor expand(const at::Tensor& x);

}  // namespace melete

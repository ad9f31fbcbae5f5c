// How far two sounds are apart in what is heard, whatever their speed: mel frames under dynamic time warping.
#pragma once

#include <ATen/ATen.h>

namespace melete::voicebox {

// Mean distance along the best path that goes forward in both, over the path's length. a [n, dim], b [m, dim]
double warped_distance(const at::Tensor& a, const at::Tensor& b);

// Of two recordings [samples] at 16 kHz: mel frames with mean 0 and deviation 1.
double warped_mel_distance(const at::Tensor& a, const at::Tensor& b);

}  // namespace melete::voicebox

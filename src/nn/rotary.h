// Rotary positions: pairs of dimensions turn by an angle that grows with the position, so that the product of
// a query and a key depends on how far apart they are.
#pragma once

#include <ATen/ATen.h>

#include "kernels/rotary.h"

namespace melete {

// theta ^ (-2 i / dim): [dim / 2] float32
at::Tensor rotary_frequencies(int64_t dim, double theta = 10000);

struct Rotation {
  at::Tensor cosine, sine;  // [positions, dim / 2] each
  RotaryPairs pairs = RotaryPairs::halves;
};
// positions [n] of any number type, frequencies [dim / 2]
Rotation rotation(const at::Tensor& positions, const at::Tensor& frequencies, RotaryPairs pairs);

// x [batch, n, heads, dim] -> the same shape. Where the rotation is narrower than x, what is after it stays.
at::Tensor rotate(const at::Tensor& x, const Rotation& by);

}  // namespace melete

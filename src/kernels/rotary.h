// Turns pairs of dimensions by angles that belong to positions, in one pass over memory. float32 on the CPU.
#pragma once

#include <ATen/ATen.h>

namespace melete {

enum class RotaryPairs {
  halves,       // dimension i turns with i + dim / 2
  interleaved,  // dimension 2 i turns with 2 i + 1
};

// Whether it takes this: float32 on the CPU.
bool has_rotary(const at::Tensor& x);

// x [batch, n, heads, dim or more]; cosine and sine [n, dim / 2] -> the same shape. Dimensions after `dim`
// stay. back: the other way round, which is the gradient.
at::Tensor rotary(const at::Tensor& x, const at::Tensor& cosine, const at::Tensor& sine, RotaryPairs pairs,
                  bool back);

}  // namespace melete

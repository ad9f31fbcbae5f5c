// Complex activations as two real tensors of one shape: what LibTorch's kernels are fastest on.
#pragma once

#include <ATen/ATen.h>

namespace melete {

struct ComplexPair {
  at::Tensor re, im;  // [batch, channels, height, width] each, channels-last
};

inline ComplexPair operator+(const ComplexPair& a, const ComplexPair& b) {
  return {a.re + b.re, a.im + b.im};
}

}  // namespace melete

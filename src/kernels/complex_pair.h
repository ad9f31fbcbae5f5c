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

// Uninitialised, channels-last: [batch of `like`, channels, height, width]
inline ComplexPair empty_pair(const at::Tensor& like, int64_t channels, int64_t height, int64_t width) {
  const auto options = like.options().memory_format(at::MemoryFormat::ChannelsLast);
  return {at::empty({like.size(0), channels, height, width}, options),
          at::empty({like.size(0), channels, height, width}, options)};
}

}  // namespace melete

// What tests of Voicebox share: networks whose weights have moved, tokens, padding.
#pragma once

#include "gradient_check.h"

namespace melete::voicebox {

// Norms that are steered start at doing nothing; moved, they do something.
template <class Module>
Module moved(Module module, double by = 0.1) {
  const at::NoGradGuard no_grad;
  uint64_t seed = 1;
  for (at::Tensor& parameter : module->parameters()) parameter.add_(by * noise(parameter.sizes(), seed++));
  module->eval();
  return module;
}

// int64 [rows, count] below `tokens`
inline at::Tensor token_ids(int64_t rows, int64_t count, uint64_t seed, int64_t tokens) {
  return noise({rows, count}, seed).abs().mul(1000).to(at::kLong).remainder(tokens);
}

// x [rows, n, ...] -> [rows, length, ...]
inline at::Tensor padded(const at::Tensor& x, int64_t length, double value) {
  std::vector<int64_t> by(static_cast<size_t>(2 * (x.dim() - 1)), 0);
  by.back() = length - x.size(1);
  return at::constant_pad_nd(x, by, value);
}

}  // namespace melete::voicebox

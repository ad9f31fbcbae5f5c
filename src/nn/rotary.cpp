#include "nn/rotary.h"

#include "core/base/error.h"

namespace melete {

at::Tensor rotary_frequencies(int64_t dim, double theta) {
  require(dim > 0 && dim % 2 == 0, "[rotary] expected an even number of dimensions, got {}", dim);
  const at::Tensor even = at::arange(0, dim, 2, at::kFloat);
  return at::pow(theta, even / dim).reciprocal();
}

Rotation rotation(const at::Tensor& positions, const at::Tensor& frequencies, RotaryPairs pairs) {
  const at::Tensor angle = at::outer(positions.to(frequencies.scalar_type()), frequencies);
  return {angle.cos(), angle.sin(), pairs};
}

at::Tensor rotate(const at::Tensor& x, const Rotation& by) {
  const int64_t half = by.cosine.size(1), turned = 2 * half;
  require(x.dim() == 4 && x.size(1) == by.cosine.size(0) && turned <= x.size(3),
          "[rotary] expected [batch, {}, heads, {} or more], got {} positions of {}", by.cosine.size(0),
          turned, x.size(1), x.size(-1));
  const at::Tensor cosine = by.cosine.unsqueeze(1), sine = by.sine.unsqueeze(1);  // [n, 1, half]
  const bool halves = by.pairs == RotaryPairs::halves;
  const at::Tensor front = x.narrow(3, 0, turned);
  const at::Tensor first = halves ? front.narrow(3, 0, half) : front.slice(3, 0, turned, 2);
  const at::Tensor second = halves ? front.narrow(3, half, half) : front.slice(3, 1, turned, 2);
  const at::Tensor one = first * cosine - second * sine, other = second * cosine + first * sine;
  at::Tensor result = halves ? at::cat({one, other}, -1) : at::stack({one, other}, -1).flatten(3);
  result = result.to(x.scalar_type());
  return turned == x.size(3) ? result : at::cat({result, x.narrow(3, turned, x.size(3) - turned)}, -1);
}

}  // namespace melete

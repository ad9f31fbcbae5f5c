#include "nn/rotary.h"

#include <torch/autograd.h>

#include "core/base/error.h"

namespace melete {

namespace {

struct Rotate : torch::autograd::Function<Rotate> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const Rotation& by) {
    context->save_for_backward({by.cosine, by.sine});
    context->saved_data["halves"] = by.pairs == RotaryPairs::halves;
    return rotary(x, by.cosine, by.sine, by.pairs, false);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const RotaryPairs pairs =
        context->saved_data["halves"].toBool() ? RotaryPairs::halves : RotaryPairs::interleaved;
    return {rotary(gradients[0], saved[0], saved[1], pairs, true), {}};
  }
};

// What the kernel does not take: other devices and types, and angles that are learned.
at::Tensor rotate_by_operators(const at::Tensor& x, const Rotation& by) {
  const int64_t half = by.cosine.size(1), turned = 2 * half;
  const at::Tensor cosine = by.cosine.unsqueeze(1), sine = by.sine.unsqueeze(1);  // [n, 1, half]
  const bool halves = by.pairs == RotaryPairs::halves;
  const at::Tensor one = halves ? x.narrow(3, 0, half) : x.slice(3, 0, turned, 2);
  const at::Tensor other = halves ? x.narrow(3, half, half) : x.slice(3, 1, turned, 2);
  const std::vector<at::Tensor> parts = {one * cosine - other * sine, other * cosine + one * sine};
  const at::Tensor result =
      (halves ? at::cat(parts, -1) : at::stack(parts, -1).flatten(3)).to(x.scalar_type());
  return turned == x.size(3) ? result : at::cat({result, x.narrow(3, turned, x.size(3) - turned)}, -1);
}

}  // namespace

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
  require(x.dim() == 4 && x.size(1) == by.cosine.size(0) && 2 * by.cosine.size(1) <= x.size(3),
          "[rotary] expected [batch, {}, heads, {} or more], got {} positions of {}", by.cosine.size(0),
          2 * by.cosine.size(1), x.size(1), x.size(-1));
  const bool learned = at::GradMode::is_enabled() && (by.cosine.requires_grad() || by.sine.requires_grad());
  const bool kernel = has_rotary(x) && has_rotary(by.cosine) && has_rotary(by.sine) && !learned;
  return kernel ? Rotate::apply(x, by) : rotate_by_operators(x, by);
}

}  // namespace melete

// What tests of hand-written gradients share: closeness, noise, and central differences.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <string>

namespace melete {

inline void expect_close(const at::Tensor& given, const at::Tensor& expected, double tolerance,
                         const std::string& what = "") {
  ASSERT_EQ(given.sizes(), expected.sizes()) << what;
  const double scale = std::max(expected.abs().max().item<double>(), 1e-3);
  EXPECT_LT((given - expected).abs().max().item<double>(), tolerance * scale) << what;
}

inline at::Tensor noise(at::IntArrayRef shape, uint64_t seed) {
  return at::randn(shape, at::detail::createCPUGenerator(seed));
}

// The derivative of f along a random direction, by central differences, against <gradient, direction>.
template <class Function>
void expect_gradient(const Function& f, const at::Tensor& at_point, uint64_t seed, double step,
                     double tolerance, const std::string& what = "") {
  const at::Tensor x = at_point.detach().clone().requires_grad_();
  const at::Tensor gradient = torch::autograd::grad({f(x)}, {x})[0];
  for (uint64_t trial = 0; trial < 3; ++trial) {
    const at::Tensor direction = noise(x.sizes(), seed + trial);
    const auto value = [&](double t) {
      return f((at_point + t * direction).detach().requires_grad_()).template item<double>();
    };
    const double measured = (value(step) - value(-step)) / (2 * step);
    const double expected = (gradient * direction).sum().item<double>();
    EXPECT_NEAR(measured, expected, tolerance * (std::abs(expected) + gradient.norm().item<double>()))
        << what << ", trial " << trial;
  }
}

}  // namespace melete

// Rotary positions.
#include "nn/rotary.h"

#include <gtest/gtest.h>
#include <torch/autograd.h>

#include <cmath>

#include "gradient_check.h"

namespace melete {
namespace rotary_test {

class RotaryTest : public ::testing::TestWithParam<RotaryPairs> {
 protected:
  static Rotation turn(int64_t first, int64_t count, int64_t dim) {
    return rotation(at::arange(first, first + count), rotary_frequencies(dim), GetParam());
  }
  // Which two dimensions turn together.
  static std::pair<int64_t, int64_t> pair(int64_t i, int64_t dim) {
    return GetParam() == RotaryPairs::halves ? std::pair{i, i + dim / 2} : std::pair{2 * i, 2 * i + 1};
  }
};

TEST_P(RotaryTest, TurnsEveryPairByItsAngle) {
  const int64_t n = 7, dim = 20;
  const at::Tensor x = noise({2, n, 3, dim}, 1), y = rotate(x, turn(5, n, dim));
  for (int64_t position = 0; position < n; ++position)
    for (int64_t i = 0; i < dim / 2; ++i) {
      const auto [one, other] = pair(i, dim);
      const double angle =
          static_cast<double>(position + 5) * std::pow(10000., -2. * static_cast<double>(i) / dim);
      const at::Tensor a = x.select(1, position).select(2, one), b = x.select(1, position).select(2, other);
      expect_close(y.select(1, position).select(2, one), a * std::cos(angle) - b * std::sin(angle), 1e-5);
      expect_close(y.select(1, position).select(2, other), b * std::cos(angle) + a * std::sin(angle), 1e-5);
    }
}

TEST_P(RotaryTest, KeepsLengths) {
  const at::Tensor x = noise({2, 50, 3, 64}, 1);
  expect_close(rotate(x, turn(0, 50, 64)).norm(2, -1), x.norm(2, -1), 1e-5);
}

TEST_P(RotaryTest, ProductsDependOnDistanceAlone) {
  const int64_t n = 9, dim = 32;
  const at::Tensor q = noise({1, 1, 1, dim}, 1).expand({1, n, 1, dim}), k = noise({1, n, 1, dim}, 2);
  const auto products = [&](int64_t first) {
    const Rotation by = turn(first, n, dim);
    return at::matmul(rotate(q, by).squeeze(), rotate(k, by).squeeze().t());
  };
  expect_close(products(40), products(0), 1e-4);
  const at::Tensor same =
      at::matmul(rotate(q, turn(0, n, dim)).squeeze(), rotate(q, turn(0, n, dim)).squeeze().t());
  for (int64_t i = 1; i < n; ++i) expect_close(same.diagonal(i), same[0][i].expand({n - i}), 1e-4);
}

TEST_P(RotaryTest, WhatIsBeyondTheRotationStays) {
  const at::Tensor x = noise({2, 6, 3, 40}, 1), y = rotate(x, turn(3, 6, 24));
  expect_close(y.narrow(3, 0, 24), rotate(x.narrow(3, 0, 24), turn(3, 6, 24)), 1e-6);
  EXPECT_TRUE(y.narrow(3, 24, 16).equal(x.narrow(3, 24, 16)));
}

// Against double precision, which takes LibTorch's operators: values and gradient, from views of a projection
// and with a gradient that is not contiguous.
TEST_P(RotaryTest, GradientAndStrides) {
  for (const int64_t dim : {2, 24, 64}) {
    const at::Tensor all = noise({2, 11, 3, 4, dim}, 1),
                     above = noise({dim, 4, 11, 2}, 2).permute({3, 2, 1, 0});
    const auto results = [&](const at::Tensor& source, const at::Tensor& g) {
      const at::Tensor leaf = source.clone().requires_grad_();
      const at::Tensor y = rotate(leaf.select(2, 1), turn(2, 11, dim));
      return std::pair{y, torch::autograd::grad({y}, {leaf}, {g})[0]};
    };
    const auto [y, gradient] = results(all, above);
    const auto [expected, right] = results(all.to(at::kDouble), above.to(at::kDouble));
    expect_close(y, expected, 1e-6);
    expect_close(gradient, right, 1e-6);
  }
  const at::Tensor weight = noise({2, 5, 3, 8}, 4);
  expect_gradient([&](const at::Tensor& x) { return (rotate(x, turn(1, 5, 8)) * weight).sum(at::kDouble); },
                  noise({2, 5, 3, 8}, 3), 10, 1e-2, 1e-3);
}

TEST_P(RotaryTest, RefusesOtherPositions) {
  EXPECT_ANY_THROW(rotate(at::zeros({1, 5, 2, 8}), turn(0, 4, 8)));
  EXPECT_ANY_THROW(rotate(at::zeros({1, 4, 2, 8}), turn(0, 4, 16)));
}

INSTANTIATE_TEST_SUITE_P(Pairs, RotaryTest, ::testing::Values(RotaryPairs::halves, RotaryPairs::interleaved));

}  // namespace rotary_test
}  // namespace melete

// Complex convolutions by minimal filtering against sums over taps in double precision.
#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/utils.h>

#include "core/engine.h"
#include "kernels/complex_conv.h"
#include "kernels/minimal_filter.h"
#include "losses/adversarial.h"
#include "nn/stft_discriminator.h"

namespace melete {
namespace minimal_filter_test {

struct Case {
  int64_t batch, in, out, height, width;
  std::array<int64_t, 2> stride, padding;
};

// Every pair of strides, sizes around and below a tile, sizes that leave part of a tile, and paddings that
// leave whole tiles outside.
std::vector<Case> cases() {
  std::vector<Case> result;
  for (const int64_t down : {1, 2})
    for (const int64_t right : {1, 2})
      for (const auto& [height, width] : {std::pair{3, 2}, {4, 5}, {9, 3}, {13, 17}, {30, 11}})
        for (const int64_t padding : {1, 2, 3})
          result.push_back({2, 32, 64, height, width, {down, right}, {padding, padding}});
  result.push_back({1, 64, 32, 6, 7, {1, 1}, {0, 0}});
  result.push_back({1, 32, 32, 8, 6, {2, 2}, {0, 0}});
  result.push_back({1, 96, 160, 10, 5, {2, 1}, {2, 1}});
  result.push_back({3, 32, 32, 120, 30, {1, 1}, {1, 1}});  // more than one block of tiles
  result.push_back({2, 128, 128, 70, 9, {2, 2}, {2, 2}});
  return result;
}

std::ostream& operator<<(std::ostream& stream, const Case& c) {
  return stream << c.batch << " x " << c.in << " -> " << c.out << " channels, " << c.height << " x "
                << c.width << ", stride " << c.stride[0] << " " << c.stride[1] << ", padding " << c.padding[0]
                << " " << c.padding[1];
}

struct Tensors {
  at::Tensor re, im, weight, bias;

  explicit Tensors(const Case& c) {
    re = at::randn({c.batch, c.in, c.height, c.width});
    im = at::randn({c.batch, c.in, c.height, c.width});
    weight = at::randn({c.out, c.in, c.stride[0] + 2, c.stride[1] + 2, 2}) * 0.1;
    bias = at::randn({c.out, 2});
  }
  std::vector<at::Tensor> leaves(at::ScalarType type) const {
    std::vector<at::Tensor> result;
    for (const at::Tensor& tensor : {re, im, weight, bias})
      result.push_back(tensor.to(type).clone().set_requires_grad(true));
    return result;
  }
};

double relative(const at::Tensor& got, const at::Tensor& want) {
  const at::Tensor wanted = want.to(at::kDouble);
  return ((got.to(at::kDouble) - wanted).abs().max() / wanted.abs().max()).item<double>();
}

TEST(MinimalFilter, EqualsSumsOverTaps) {
  torch::manual_seed(1);
  for (const Case& c : cases()) {
    const Tensors tensors(c);
    ASSERT_TRUE(minimal_filter_fits(tensors.weight, {c.stride, c.padding})) << c;
    const auto a = tensors.leaves(at::kFloat), b = tensors.leaves(at::kDouble);
    const ComplexPair got = complex_conv2d({a[0], a[1]}, a[2], a[3], c.stride, c.padding);
    const ComplexPair want = complex_conv2d_reference({b[0], b[1]}, b[2], b[3], c.stride, c.padding);
    ASSERT_EQ(got.re.sizes(), want.re.sizes()) << c;
    EXPECT_LT(relative(got.re, want.re), 1e-5) << c;
    EXPECT_LT(relative(got.im, want.im), 1e-5) << c;
    const at::Tensor g_re = at::randn(want.re.sizes()), g_im = at::randn(want.re.sizes());
    const auto x = torch::autograd::grad({got.re, got.im}, a, {g_re, g_im});
    const auto y = torch::autograd::grad({want.re, want.im}, b, {g_re.to(at::kDouble), g_im.to(at::kDouble)});
    for (size_t i = 0; i < x.size(); ++i) EXPECT_LT(relative(x[i], y[i]), 3e-5) << c << ", input " << i;
  }
}

// <conv(x, w), g> is linear in x and in w, so its gradients give it back.
TEST(MinimalFilter, GradientsAreAdjoint) {
  torch::manual_seed(2);
  const Case c{2, 32, 32, 21, 14, {2, 1}, {2, 1}};
  const Tensors tensors(c);
  const ConvGeometry geometry{c.stride, c.padding};
  const auto last = [](const at::Tensor& t) { return t.contiguous(at::MemoryFormat::ChannelsLast); };
  const auto dot = [](const at::Tensor& a, const at::Tensor& b) {
    return (a.to(at::kDouble) * b.to(at::kDouble)).sum().item<double>();
  };
  const ComplexPair x{last(tensors.re), last(tensors.im)};
  const ComplexPair y = minimal_filter_conv2d(x, tensors.weight, at::zeros_like(tensors.bias), geometry);
  const ComplexPair g{last(at::randn_like(y.re)), last(at::randn_like(y.re))};
  const double product = dot(y.re, g.re) + dot(y.im, g.im);
  const double scale = std::sqrt(dot(y.re, y.re) * dot(g.re, g.re));
  const ComplexPair by_x = minimal_filter_input_gradient(g, tensors.weight, {c.height, c.width}, geometry);
  EXPECT_NEAR(dot(by_x.re, x.re) + dot(by_x.im, x.im), product, 1e-5 * scale);
  const at::Tensor by_weight = minimal_filter_weight_gradient(g, x, tensors.weight, geometry);
  EXPECT_NEAR(dot(by_weight, tensors.weight), product, 1e-5 * scale);
}

TEST(MinimalFilter, ResultsDoNotDependOnThreads) {
  torch::manual_seed(3);
  const int threads = thread_count();
  for (const Case& c : {Case{2, 32, 64, 90, 31, {1, 2}, {1, 2}}, Case{2, 128, 128, 40, 9, {1, 1}, {1, 1}}}) {
    const Tensors tensors(c);
    std::vector<std::vector<at::Tensor>> results;
    for (const int count : {1, 2, 3}) {
      set_threads(count);
      const auto leaves = tensors.leaves(at::kFloat);
      const ComplexPair y = complex_conv2d({leaves[0], leaves[1]}, leaves[2], leaves[3], c.stride, c.padding);
      results.push_back(
          torch::autograd::grad({y.re.square().sum() + y.im.sum()}, {leaves[0], leaves[1], leaves[2]}));
      results.back().push_back(y.re.detach());
      results.back().push_back(y.im.detach());
    }
    set_threads(threads);
    for (size_t i = 0; i < results[0].size(); ++i) {
      EXPECT_TRUE(at::equal(results[0][i], results[1][i])) << c << ", result " << i;
      EXPECT_TRUE(at::equal(results[0][i], results[2][i])) << c << ", result " << i;
    }
  }
}

TEST(MinimalFilter, TwiceDifferentiable) {
  torch::manual_seed(4);
  const Case c{2, 32, 32, 9, 6, {1, 2}, {1, 2}};
  const Tensors tensors(c);
  const auto penalty = [&](const std::vector<at::Tensor>& leaves, const auto& conv) {
    const ComplexPair y = conv(ComplexPair{leaves[0], leaves[1]}, leaves[2], leaves[3], c.stride, c.padding);
    return gradient_penalty(leaves[0], (y.re.square() * y.im).mean());
  };
  const auto a = tensors.leaves(at::kFloat), b = tensors.leaves(at::kDouble);
  const at::Tensor got = penalty(a, complex_conv2d), want = penalty(b, complex_conv2d_reference);
  EXPECT_LT(relative(got, want), 1e-4);
  const auto x = torch::autograd::grad({got}, {a[2], a[3]}), y = torch::autograd::grad({want}, {b[2], b[3]});
  for (size_t i = 0; i < x.size(); ++i) EXPECT_LT(relative(x[i], y[i]), 1e-3) << "input " << i;
}

// The reference values have few channels and go past this kernel; so here the discriminator in its real size,
// with the tolerances that reference values have. In double precision it takes LibTorch's convolutions.
TEST(MinimalFilter, WholeDiscriminatorEqualsDoublePrecision) {
  torch::manual_seed(5);
  StftDiscriminator single{StftDiscriminatorConfig{}}, twice{StftDiscriminatorConfig{}};
  const auto parameters = single->parameters(), exact = twice->parameters();
  {
    const at::NoGradGuard no_grad;
    twice->to(at::kDouble);
    for (size_t i = 0; i < exact.size(); ++i) twice->parameters()[i].copy_(parameters[i]);
  }
  const at::Tensor wave = at::randn({1, 4096});
  const at::Tensor a = wave.clone().set_requires_grad(true), b = wave.to(at::kDouble).set_requires_grad(true);
  const Judgement got = single->forward(a), want = twice->forward(b);
  EXPECT_LT(relative(got.complex_features.back().re, want.complex_features.back().re), 1e-4);
  EXPECT_LT(relative(got.complex_features.back().im, want.complex_features.back().im), 1e-4);
  auto inputs = single->parameters(), exact_inputs = twice->parameters();
  inputs.push_back(a);
  exact_inputs.push_back(b);
  const auto energy = [](const Judgement& judgement) {
    const ComplexPair& z = judgement.complex_features.back();
    return (z.re.square() + z.im.square()).mean().to(at::kDouble);
  };
  const auto x = torch::autograd::grad({energy(got)}, inputs, {}, false, false, true),
             y = torch::autograd::grad({energy(want)}, exact_inputs, {}, false, false, true);
  for (size_t i = 0; i < x.size(); ++i) {
    ASSERT_EQ(x[i].defined(), y[i].defined()) << "parameter " << i;
    if (!x[i].defined()) continue;
    EXPECT_LT(relative(x[i], y[i]), 1e-3) << "parameter " << i;
  }
}

TEST(MinimalFilter, LeavesTheRestToLibTorch) {
  const ConvGeometry plain{{1, 1}, {1, 1}};
  EXPECT_TRUE(minimal_filter_fits(at::zeros({32, 32, 3, 3, 2}), plain));
  EXPECT_FALSE(minimal_filter_fits(at::zeros({32, 1, 3, 3, 2}), plain));
  EXPECT_FALSE(minimal_filter_fits(at::zeros({48, 32, 3, 3, 2}), plain));
  EXPECT_FALSE(minimal_filter_fits(at::zeros({32, 32, 4, 3, 2}), plain));
  EXPECT_FALSE(minimal_filter_fits(at::zeros({32, 32, 5, 5, 2}), {{3, 3}, {2, 2}}));
  EXPECT_FALSE(minimal_filter_fits(at::zeros({32, 32, 3, 3, 2}, at::kDouble), plain));
  EXPECT_FALSE(minimal_filter_fits(at::zeros({32, 32, 3, 3, 2}, at::kBFloat16), plain));
}

}  // namespace minimal_filter_test
}  // namespace melete

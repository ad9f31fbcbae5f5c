// The fused optimiser pass against its plain form and against LibTorch's own optimisers.
#include "train/optimiser.h"

#include <gtest/gtest.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>

#include <cmath>
#include <limits>

#include "core/base/error.h"
#include "kernels/adam.h"
#include "kernels/lion.h"

namespace melete {
namespace optimiser_test {

at::Tensor noise(at::IntArrayRef shape, uint64_t seed) {
  auto generator = at::detail::createCPUGenerator(seed);
  return at::randn(shape, generator);
}

double gap(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

TEST(Adam, LoopEqualsPlainFormForAwkwardSizes) {
  for (const int64_t size : {1, 3, 17, 1000, 100003}) {
    at::Tensor p1 = noise({size}, 1), p2 = p1.clone();
    at::Tensor m1 = at::zeros({size}), m2 = m1.clone(), v1 = m1.clone(), v2 = m1.clone();
    AdamSettings settings;
    settings.weight_decay = 0.1;
    settings.gradient_scale = 0.37;
    for (settings.step = 1; settings.step <= 5; ++settings.step) {
      const at::Tensor gradient = noise({size}, 10 + static_cast<uint64_t>(settings.step));
      adam_update(p1, gradient, m1, v1, settings);
      adam_update_plain(p2, gradient, m2, v2, settings);
    }
    EXPECT_LT(gap(p1, p2), 1e-6) << size;
    EXPECT_LT(gap(m1, m2), 1e-6) << size;
    EXPECT_LT(gap(v1, v2), 1e-6) << size;
  }
}

TEST(Adam, MemoryLayoutsDoNotMatter) {
  const at::Tensor start = noise({4, 6, 5}, 2);
  const at::Tensor gradient = noise({4, 6, 5}, 3);
  at::Tensor straight = start.clone();
  at::Tensor turned = start.permute({2, 0, 1}).contiguous().permute({1, 2, 0});  // same values, other strides
  ASSERT_NE(turned.strides(), straight.strides());
  at::Tensor m1 = at::zeros_like(straight), v1 = at::zeros_like(straight);
  at::Tensor m2 = at::zeros_like(turned), v2 = at::zeros_like(turned);
  at::Tensor sliced = at::zeros({4, 12, 5}).slice(1, 0, 12, 2);  // not dense: the plain form takes it
  sliced.copy_(start);
  at::Tensor m3 = at::zeros({4, 6, 5}), v3 = at::zeros({4, 6, 5});
  adam_update(straight, gradient, m1, v1, {});
  adam_update(turned, gradient, m2, v2, {});
  adam_update(sliced, gradient, m3, v3, {});
  EXPECT_TRUE(turned.equal(straight));
  EXPECT_LT(gap(sliced, straight), 1e-6);
}

TEST(Adam, DoublePrecisionTakesThePlainForm) {
  at::Tensor p = at::ones({3}, at::kDouble), m = at::zeros({3}, at::kDouble), v = at::zeros({3}, at::kDouble);
  AdamSettings settings;
  settings.learning_rate = 0.01;
  adam_update(p, at::full({3}, 2.0, at::kDouble), m, v, settings);
  // The first step of Adam is the learning rate in the direction of the gradient's sign.
  EXPECT_NEAR(p[0].item<double>(), 0.99, 1e-9);
}

// Runs `steps` of LibTorch's optimiser and of ours on the same gradients.
template <class Options, class Theirs>
void compare_with_torch(double weight_decay) {
  OptimiserConfig config;
  config.learning_rate = 0.02;
  config.weight_decay = weight_decay;
  config.beta2 = 0.95;
  std::vector<at::Tensor> ours, theirs;
  NamedTensors named;
  for (int i = 0; i < 3; ++i) {
    ours.push_back(noise({5, 7 + i}, static_cast<uint64_t>(i)).set_requires_grad(true));
    theirs.push_back(ours.back().detach().clone().set_requires_grad(true));
    named.emplace_back("p" + std::to_string(i), ours.back());
  }
  Optimiser optimiser(named, config);
  Theirs reference(theirs, Options(0.02).betas({0.9, 0.95}).weight_decay(weight_decay));
  for (uint64_t step = 0; step < 20; ++step) {
    for (size_t i = 0; i < ours.size(); ++i) {
      const at::Tensor gradient = noise(ours[i].sizes(), 100 + step * 10 + i);
      ours[i].mutable_grad() = gradient;
      theirs[i].mutable_grad() = gradient.clone();
    }
    optimiser.step(0.02);
    reference.step();
  }
  for (size_t i = 0; i < ours.size(); ++i) EXPECT_LT(gap(ours[i].detach(), theirs[i].detach()), 2e-6);
}

TEST(Optimiser, EqualsTorchAdam) {
  compare_with_torch<torch::optim::AdamOptions, torch::optim::Adam>(0);
}

TEST(Optimiser, EqualsTorchAdamW) {
  compare_with_torch<torch::optim::AdamWOptions, torch::optim::AdamW>(0.3);
}

// Lion's formula, an element at a time in double precision.
struct LionByHand {
  std::vector<double> p, m;

  explicit LionByHand(const at::Tensor& start) : p(start.numel()), m(static_cast<size_t>(start.numel()), 0) {
    for (size_t i = 0; i < p.size(); ++i) p[i] = start.flatten()[static_cast<int64_t>(i)].item<double>();
  }
  void step(const at::Tensor& gradient, const LionSettings& s) {
    for (size_t i = 0; i < p.size(); ++i) {
      const double g = gradient.flatten()[static_cast<int64_t>(i)].item<double>() * s.gradient_scale;
      const double direction = s.beta1 * m[i] + (1 - s.beta1) * g;
      const double sign = direction > 0 ? 1 : direction < 0 ? -1 : 0;
      p[i] -= s.learning_rate * (sign + s.weight_decay * p[i]);
      m[i] = s.beta2 * m[i] + (1 - s.beta2) * g;
    }
  }
  double gap_to(const at::Tensor& parameter, const at::Tensor& mean) const {
    double largest = 0;
    for (size_t i = 0; i < p.size(); ++i) {
      const auto at = static_cast<int64_t>(i);
      largest = std::max({largest, std::abs(parameter.flatten()[at].item<double>() - p[i]),
                          std::abs(mean.flatten()[at].item<double>() - m[i])});
    }
    return largest;
  }
};

TEST(Lion, LoopAndPlainFormAreTheFormula) {
  LionSettings settings;
  settings.learning_rate = 0.01;
  settings.weight_decay = 0.2;
  settings.gradient_scale = 0.37;
  settings.beta1 = 0.8;
  settings.beta2 = 0.95;
  for (const int64_t size : {1, 17, 1003}) {
    const at::Tensor start = noise({size}, 1);
    at::Tensor p1 = start.clone(), p2 = start.clone(), m1 = at::zeros({size}), m2 = m1.clone();
    LionByHand by_hand(start);
    for (uint64_t step = 0; step < 6; ++step) {
      const at::Tensor gradient = noise({size}, 10 + step);
      lion_update(p1, gradient, m1, settings);
      lion_update_plain(p2, gradient, m2, settings);
      by_hand.step(gradient, settings);
    }
    EXPECT_LT(by_hand.gap_to(p1, m1), 1e-6) << size;
    EXPECT_LT(by_hand.gap_to(p2, m2), 1e-6) << size;
  }
  // The loop runs in parts; the two forms agree across their borders.
  at::Tensor p1 = noise({100003}, 1), p2 = p1.clone(), m1 = noise({100003}, 2), m2 = m1.clone();
  lion_update(p1, noise({100003}, 3), m1, settings);
  lion_update_plain(p2, noise({100003}, 3), m2, settings);
  EXPECT_LT(gap(p1, p2), 1e-6);
  EXPECT_LT(gap(m1, m2), 1e-6);
}

TEST(Lion, NothingMovesWithoutAGradientAndWhatIsNoNumberStaysSo) {
  for (const auto& update : {lion_update, lion_update_plain}) {
    at::Tensor p = at::tensor({1.0f, 2.0f}), m = at::zeros({2});
    update(p, at::zeros({2}), m, {});
    EXPECT_TRUE(at::equal(p, at::tensor({1.0f, 2.0f})));
    update(p, at::tensor({0.5f, std::numeric_limits<float>::quiet_NaN()}), m, {});
    EXPECT_LT(p[0].item<float>(), 1);
    EXPECT_TRUE(std::isnan(p[1].item<float>()));
  }
}

TEST(Lion, MemoryLayoutsDoNotMatter) {
  const at::Tensor start = noise({4, 6, 5}, 2), gradient = noise({4, 6, 5}, 3);
  at::Tensor straight = start.clone(), turned = start.permute({2, 0, 1}).contiguous().permute({1, 2, 0});
  at::Tensor m1 = at::zeros_like(straight), m2 = at::zeros_like(turned);
  lion_update(straight, gradient, m1, {});
  lion_update(turned, gradient, m2, {});
  EXPECT_TRUE(turned.equal(straight));
  EXPECT_FALSE(straight.equal(start));
}

// The optimiser's own way there: clip scale, decay of matrices alone, its state and back.
TEST(Lion, TheOptimiserFollowsItAndGoesOn) {
  OptimiserConfig config;
  config.kind = "lion";
  config.weight_decay = 0.3;
  LionSettings settings;
  settings.learning_rate = 0.02;
  settings.weight_decay = 0.3;
  settings.beta1 = config.beta1;
  settings.beta2 = config.beta2;
  const at::Tensor start = noise({3, 4}, 4);
  at::Tensor p = start.clone().set_requires_grad(true), q = start.clone().set_requires_grad(true);
  Optimiser optimiser({{"p", p}}, config);
  LionByHand by_hand(start);
  TensorMap state;
  for (uint64_t step = 0; step < 6; ++step) {
    p.mutable_grad() = noise({3, 4}, 20 + step);
    optimiser.step(0.02);
    by_hand.step(p.grad(), settings);
    if (step != 2) continue;
    optimiser.state(state, "x.");
    for (auto& [name, tensor] : state) tensor = tensor.clone();
    const at::NoGradGuard guard;
    q.copy_(p);
  }
  EXPECT_EQ(state.count("x.p.second"), 0u);
  TensorMap end;
  optimiser.state(end, "x.");
  EXPECT_LT(by_hand.gap_to(p.detach(), end.at("x.p.first")), 1e-6);
  Optimiser resumed({{"p", q}}, config);
  resumed.load(state, "x.");
  for (uint64_t step = 3; step < 6; ++step) {
    q.mutable_grad() = noise({3, 4}, 20 + step);
    resumed.step(0.02);
  }
  EXPECT_TRUE(q.detach().equal(p.detach()));
}

TEST(Optimiser, DecaysOnlyTensorsOfTwoDimensions) {
  OptimiserConfig config;
  config.weight_decay = 0.5;
  at::Tensor matrix = at::ones({2, 2}).set_requires_grad(true);
  at::Tensor bias = at::ones({2}).set_requires_grad(true);
  at::Tensor gain = at::ones({}).set_requires_grad(true);
  for (at::Tensor* t : {&matrix, &bias, &gain}) t->mutable_grad() = at::zeros_like(*t);
  Optimiser({{"matrix", matrix}, {"bias", bias}, {"gain", gain}}, config).step(0.1);
  EXPECT_NEAR(matrix.detach()[0][0].item<double>(), 0.95, 1e-6);
  EXPECT_EQ(bias.detach()[0].item<float>(), 1.0f);
  EXPECT_EQ(gain.item<float>(), 1.0f);
}

TEST(Optimiser, SkipsParametersWithoutAGradientAndCountsTheirStepsApart) {
  at::Tensor moved = at::ones({3}).set_requires_grad(true), late = at::ones({3}).set_requires_grad(true);
  Optimiser optimiser({{"moved", moved}, {"late", late}}, {});
  moved.mutable_grad() = at::ones({3});
  optimiser.step(0.1);
  optimiser.step(0.1);
  EXPECT_TRUE(late.detach().equal(at::ones({3})));
  TensorMap state;
  optimiser.state(state, "o.");
  EXPECT_EQ(state.at("o.moved.step").item<int64_t>(), 2);
  EXPECT_EQ(state.count("o.late.step"), 0u);
  late.mutable_grad() = at::ones({3});
  optimiser.step(0.1);  // its first step: full size in spite of the others' count
  EXPECT_NEAR(late.detach()[0].item<double>(), 0.9, 1e-5);
}

TEST(Optimiser, StateRoundTripContinuesBitForBit) {
  const auto make = [] { return noise({4, 4}, 5).set_requires_grad(true); };
  at::Tensor a = make(), b = make();
  Optimiser first({{"p", a}}, {});
  for (uint64_t step = 0; step < 3; ++step) {
    a.mutable_grad() = noise({4, 4}, step);
    first.step(0.1);
  }
  TensorMap state;
  first.state(state, "x.");
  for (auto& [name, tensor] : state) tensor = tensor.clone();
  {
    at::NoGradGuard guard;
    b.copy_(a);
  }
  Optimiser second({{"p", b}}, {});
  second.load(state, "x.");
  for (uint64_t step = 3; step < 6; ++step) {
    a.mutable_grad() = noise({4, 4}, step);
    b.mutable_grad() = noise({4, 4}, step);
    first.step(0.1);
    second.step(0.1);
  }
  EXPECT_TRUE(a.detach().equal(b.detach()));
  state["x.p.first"] = at::zeros({3});
  EXPECT_THROW(second.load(state, "x."), Error);
  state.erase("x.p.first");
  EXPECT_THROW(second.load(state, "x."), Error);
}

TEST(Optimiser, RefusesTheSameTensorTwice) {
  at::Tensor p = at::ones({2});
  EXPECT_THROW(Optimiser({{"a", p}, {"b", p}}, {}), Error);
  EXPECT_THROW(Optimiser({{"a", p}, {"a", p.clone()}}, {}), Error);
}

TEST(Clip, FoldedScaleEqualsScaledGradient) {
  at::Tensor a = at::ones({3, 3}).set_requires_grad(true), b = at::ones({3, 3}).set_requires_grad(true);
  const at::Tensor gradient = noise({3, 3}, 9) * 100;
  a.mutable_grad() = gradient;
  Optimiser folded({{"p", a}}, {}), scaled({{"p", b}}, {});
  const double scale = clip_scale(folded.gradient_norm().item<double>(), 0.5);
  EXPECT_NEAR(scale, 0.5 / gradient.norm().item<double>(), 1e-7);
  b.mutable_grad() = gradient * scale;
  EXPECT_NEAR(b.grad().norm().item<double>(), 0.5, 1e-5);
  folded.step(0.1, scale);
  scaled.step(0.1);
  EXPECT_TRUE(a.detach().equal(b.detach()));
  EXPECT_EQ(clip_scale(0.1, 0.5), 1);
  EXPECT_EQ(clip_scale(1e9, 0), 1);
}

TEST(Clip, NormOfNothingIsZeroAndOfNanIsNan) {
  at::Tensor p = at::ones({2}).set_requires_grad(true);
  EXPECT_EQ(gradient_norm({p}).item<float>(), 0);
  p.mutable_grad() = at::full({2}, std::numeric_limits<float>::quiet_NaN());
  EXPECT_TRUE(std::isnan(gradient_norm({p}).item<float>()));
}

}  // namespace optimiser_test
}  // namespace melete

// Complex kernels against LibTorch's own operators, and the pair that both phases of a GAN step share.
#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/utils.h>

#include "core/autocast.h"
#include "kernels/complex_conv.h"
#include "kernels/complex_elementwise.h"
#include "losses/adversarial.h"
#include "systems/soundstream/gan.h"

namespace melete {
namespace complex_test {

double difference(const at::Tensor& a, const at::Tensor& b) {
  return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
}

at::Tensor random(at::IntArrayRef shape) {
  return at::randn(shape).set_requires_grad(true);
}

// Gradients of a scalar that weighs every output differently.
std::vector<at::Tensor> gradients(const ComplexPair& y, const std::vector<at::Tensor>& inputs,
                                  bool again = false) {
  const at::Tensor ramp = at::linspace(-1, 1, y.re.numel()).view_as(y.re);
  return torch::autograd::grad({(y.re * ramp).sum() + (y.im * ramp * ramp).sum()}, inputs, {}, again, again);
}

TEST(ComplexConv, EqualsFourRealConvolutions) {
  torch::manual_seed(1);
  for (const auto& [stride, padding] :
       {std::pair{std::array<int64_t, 2>{1, 1}, std::array<int64_t, 2>{1, 1}},
        std::pair{std::array<int64_t, 2>{2, 1}, std::array<int64_t, 2>{2, 0}}}) {
    const at::Tensor re = random({2, 3, 9, 7}), im = random({2, 3, 9, 7});
    const at::Tensor weight = random({5, 3, 3, 2, 2}), bias = random({5, 2});
    const std::vector<at::Tensor> inputs{re, im, weight, bias};
    const ComplexPair got = complex_conv2d({re, im}, weight, bias, stride, padding);
    const ComplexPair want = complex_conv2d_reference({re, im}, weight, bias, stride, padding);
    EXPECT_LT(difference(got.re, want.re), 1e-4);
    EXPECT_LT(difference(got.im, want.im), 1e-4);
    const auto a = gradients(got, inputs), b = gradients(want, inputs);
    for (size_t i = 0; i < inputs.size(); ++i) EXPECT_LT(difference(a[i], b[i]), 1e-3) << "input " << i;
  }
}

// The first layer over a spectrum has a kernel of its own.
TEST(ComplexConv, OneChannelEqualsFourRealConvolutions) {
  torch::manual_seed(3);
  struct Case {
    int64_t batch, out, height, width;
    std::array<int64_t, 2> kernel, padding;
  };
  for (const Case& c : {Case{2, 32, 21, 30, {7, 7}, {3, 3}}, Case{1, 16, 9, 8, {3, 5}, {0, 4}},
                        Case{3, 48, 5, 3, {2, 1}, {1, 0}}, Case{1, 64, 7, 17, {7, 4}, {6, 1}}}) {
    const at::Tensor re = random({c.batch, 1, c.height, c.width}),
                     im = random({c.batch, 1, c.height, c.width});
    const at::Tensor weight = random({c.out, 1, c.kernel[0], c.kernel[1], 2}), bias = random({c.out, 2});
    const std::vector<at::Tensor> inputs{re, im, weight, bias};
    const ComplexPair got = complex_conv2d({re, im}, weight, bias, {1, 1}, c.padding);
    const ComplexPair want = complex_conv2d_reference({re, im}, weight, bias, {1, 1}, c.padding);
    ASSERT_EQ(got.re.sizes(), want.re.sizes());
    EXPECT_TRUE(got.re.is_contiguous(at::MemoryFormat::ChannelsLast));
    EXPECT_LT(difference(got.re, want.re), 1e-4);
    EXPECT_LT(difference(got.im, want.im), 1e-4);
    const auto a = gradients(got, inputs), b = gradients(want, inputs);
    for (size_t i = 0; i < inputs.size(); ++i)
      EXPECT_LT(difference(a[i], b[i]), 2e-5 * b[i].abs().max().item<double>()) << "input " << i;
    EXPECT_LT(
        difference(gradients(complex_conv2d({re, im}, weight, bias, {1, 1}, c.padding), {bias})[0], b[3]),
        1e-3);
  }
}

TEST(ComplexConv, OnlyTheGradientsAskedFor) {
  const at::Tensor re = random({1, 2, 5, 5}), im = random({1, 2, 5, 5});
  const at::Tensor weight = at::randn({3, 2, 3, 3, 2}), bias = at::randn({3, 2});
  const ComplexPair y = complex_conv2d({re, im}, weight, bias, {1, 1}, {1, 1});
  const auto found = gradients(y, {re, im});
  EXPECT_TRUE(found[0].defined() && found[1].defined());
}

// The gradient of a gradient's norm, as a gradient penalty needs it, through every kernel of the STFT
// discriminator.
TEST(ComplexKernels, TwiceDifferentiable) {
  torch::manual_seed(2);
  for (const double level : {-0.3, 0.0, 0.4}) {
    const at::Tensor weight = random({2, 2, 3, 3, 2}), bias = random({2, 2}),
                     threshold = at::full({}, level).set_requires_grad(true);
    const at::Tensor wave = random({2, 2, 6, 5});
    const auto penalty = [&](const auto& conv, const auto& activation) {
      const ComplexPair z = activation(conv(ComplexPair{wave, wave * 0.5}), threshold);
      return gradient_penalty(wave, (z.re.square() + z.im).mean());
    };
    const at::Tensor got = penalty(
        [&](const ComplexPair& x) {
          return complex_conv2d(x, weight, bias, {1, 1}, {1, 1});
        },
        mod_relu);
    const at::Tensor want = penalty(
        [&](const ComplexPair& x) {
          return complex_conv2d_reference(x, weight, bias, {1, 1}, {1, 1});
        },
        mod_relu_reference);
    EXPECT_NEAR(got.item<float>(), want.item<float>(), 1e-4 * std::abs(want.item<float>()));
    const std::vector<at::Tensor> inputs{weight, bias, threshold};
    const auto a = torch::autograd::grad({got}, inputs), b = torch::autograd::grad({want}, inputs);
    for (size_t i = 0; i < inputs.size(); ++i)
      EXPECT_LT(difference(a[i], b[i]), 1e-3 * std::max(1.0, b[i].abs().max().item<double>()))
          << "input " << i;
  }
}

TEST(ModRelu, EqualsItsFormula) {
  torch::manual_seed(3);
  for (const float level : {-0.5f, 0.f, 0.4f}) {
    const at::Tensor re = random({2, 5, 37, 41}), im = random({2, 5, 37, 41});
    const at::Tensor threshold = at::full({}, level).set_requires_grad(true);
    const ComplexPair got = mod_relu({re, im}, threshold), want = mod_relu_reference({re, im}, threshold);
    EXPECT_LT(difference(got.re, want.re), 1e-5);
    EXPECT_LT(difference(got.im, want.im), 1e-5);
    const auto a = gradients(got, {re, im, threshold}), b = gradients(want, {re, im, threshold});
    EXPECT_LT(difference(a[0], b[0]), 1e-4);
    EXPECT_LT(difference(a[1], b[1]), 1e-4);
    EXPECT_LT(difference(a[2], b[2]), 1e-3 * std::max(1.0, b[2].abs().item<double>()));
  }
}

TEST(ModRelu, ZeroHasAFiniteGradient) {
  const at::Tensor re = at::zeros({1, 1, 2, 2}).set_requires_grad(true),
                   im = at::zeros({1, 1, 2, 2}).set_requires_grad(true);
  const ComplexPair y = mod_relu({re, im}, at::full({}, 0.25));
  EXPECT_FLOAT_EQ(y.re[0][0][0][0].item<float>(), 0.25f);  // |z| + b along the angle of zero
  for (const at::Tensor& gradient : gradients(y, {re, im}))
    EXPECT_TRUE(at::isfinite(gradient).all().item<bool>());
}

TEST(MeanDistance, EqualsItsFormula) {
  torch::manual_seed(4);
  const at::Tensor a = random({2, 3, 70, 90}), b = random({2, 3, 70, 90}), c = random({2, 3, 70, 90}),
                   d = random({2, 3, 70, 90});
  const at::Tensor got = mean_distance({a, b}, {c, d}), want = mean_distance_reference({a, b}, {c, d});
  EXPECT_NEAR(got.item<float>(), want.item<float>(), 1e-5);
  const auto x = torch::autograd::grad({got * 3}, {a, b, c, d}),
             y = torch::autograd::grad({want * 3}, {a, b, c, d});
  for (size_t i = 0; i < x.size(); ++i) EXPECT_LT(difference(x[i], y[i]), 1e-9) << "input " << i;
}

TEST(MeanDistance, EqualInputsHaveNoGradient) {
  const at::Tensor a = random({1, 1, 3, 3});
  const auto gradient = torch::autograd::grad({mean_distance({a, a}, {a.detach(), a.detach()})}, {a});
  EXPECT_EQ(gradient[0].abs().max().item<float>(), 0);
}

SoundStreamGanConfig small() {
  SoundStreamGanConfig config;
  config.codec.channels = 4;
  config.codec.strides = {2, 4};
  config.codec.channel_multiples = {2, 4};
  config.codec.dim = 16;
  config.codec.attention_heads = 2;
  config.codec.attention_head_dim = 8;
  config.codec.attention_window = 8;
  config.codec.quantizer.quantizers = 2;
  config.codec.quantizer.codebook_size = 16;
  config.multi_scale = {2, 2, {2, 4}, 8};
  config.stft.channels = 2;
  config.stft.channel_multiples = {1, 1, 2, 2, 2, 4};
  config.stft.n_fft = 256;
  config.stft.hop = 64;
  config.stft.window = 256;
  config.loss.mel.window_powers = {6, 7};
  config.loss.mel.n_ffts = {128};
  config.loss.mel.mels = {8};
  return config;
}

void require_grad(torch::nn::Module& module, bool on) {
  for (const at::Tensor& parameter : module.parameters()) {
    parameter.set_requires_grad(on);
    parameter.mutable_grad().reset();
  }
}

std::vector<at::Tensor> gradients_of(torch::nn::Module& module) {
  std::vector<at::Tensor> all;
  for (const at::Tensor& parameter : module.parameters())
    all.push_back(parameter.grad().defined() ? parameter.grad().clone() : at::Tensor());
  return all;
}

void expect_same(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].defined(), b[i].defined()) << i;
    if (a[i].defined()) {
      EXPECT_LT(difference(a[i], b[i]), 1e-5 + 1e-4 * b[i].abs().max().item<double>()) << i;
    }
  }
}

// What both phases get from one shared pair is what they would get on their own.
TEST(SoundStreamGan, SharedContestChangesNoGradient) {
  torch::manual_seed(5);
  SoundStreamGan gan(small());
  gan->eval();  // so that codebooks stand still between the two ways
  const at::Tensor wave = 0.3 * at::randn({2, 640});
  const auto generator_phase = [&](RealAndFake* pair) {
    require_grad(*gan->codec, true);
    require_grad(*gan->discriminators, false);
    const auto losses = gan->generator_losses(wave, nullptr, {}, {}, pair);
    losses.total.backward();
    return std::pair{losses.total.item<float>(), gradients_of(*gan->codec)};
  };
  const auto discriminator_phase = [&](const RealAndFake& pair) {
    require_grad(*gan->codec, false);
    require_grad(*gan->discriminators, true);
    at::Tensor total = at::zeros({});
    for (const auto& [name, value] : gan->discriminators->losses(pair, false)) total = total + value;
    total.backward();
    return std::pair{total.item<float>(), gradients_of(*gan->discriminators)};
  };
  RealAndFake shared;
  const auto [apart_loss, apart] = generator_phase(nullptr);
  const auto [shared_loss, together] = generator_phase(&shared);
  EXPECT_NEAR(shared_loss, apart_loss, 1e-4 * std::abs(apart_loss));
  expect_same(together, apart);
  for (const at::Tensor& weight : gan->discriminators->parameters()) EXPECT_FALSE(weight.grad().defined());

  RealAndFake judged_again{shared.real, shared.fake, {}, {}};
  const auto [kept_loss, kept] = discriminator_phase(shared);
  const auto [new_loss, anew] = discriminator_phase(judged_again);
  EXPECT_NEAR(kept_loss, new_loss, 1e-5);
  expect_same(kept, anew);
}

TEST(SoundStreamGan, Bf16FollowsFp32) {
  torch::manual_seed(6);
  SoundStreamGan gan(small());
  gan->eval();
  require_grad(*gan->codec, true);
  require_grad(*gan->discriminators, false);
  const at::Tensor wave = 0.3 * at::randn({2, 640});
  const float exact = gan->generator_losses(wave, nullptr).total.item<float>();
  at::Tensor mixed;
  {
    const AutocastScope bf16(at::kCPU, true);
    mixed = gan->generator_losses(wave, nullptr).total;
  }
  mixed.backward();
  EXPECT_NEAR(mixed.item<float>(), exact, 0.1 * std::abs(exact));
  for (const at::Tensor& parameter : gan->codec->parameters())
    if (parameter.grad().defined()) {
      EXPECT_TRUE(at::isfinite(parameter.grad()).all().item<bool>());
    }
}

}  // namespace complex_test
}  // namespace melete

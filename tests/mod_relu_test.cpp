// ModReLU of complex activations against its formula in double precision: value, gradient, and the gradient
// of the gradient that a gradient penalty needs.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/utils.h>

#include <cmath>

#include "gradient_check.h"
#include "kernels/complex_elementwise.h"
#include "losses/adversarial.h"
#include "nn/stft_discriminator.h"

namespace melete {
namespace mod_relu_test {

using torch::autograd::grad;

// The tests keep real and imaginary parts side by side in one tensor.
ComplexPair pair(const at::Tensor& x) {
  const auto parts = x.chunk(2, 1);
  return {parts[0], parts[1]};
}

at::Tensor activated(const at::Tensor& x, const at::Tensor& bias) {
  const ComplexPair y = mod_relu(pair(x), bias);
  return at::cat({y.re, y.im}, 1);
}

at::Tensor activated_by_reference(const at::Tensor& x, const at::Tensor& bias) {
  const ComplexPair y = mod_relu_reference(pair(x), bias);
  return at::cat({y.re, y.im}, 1);
}

// relu(|z| + b) z / |z| by complex arithmetic in double precision, as the paper writes it.
at::Tensor mod_relu_formula(const at::Tensor& x, const at::Tensor& bias) {
  const auto parts = x.to(at::kDouble).chunk(2, 1);
  const at::Tensor magnitude = at::sqrt(parts[0].square() + parts[1].square());
  const at::Tensor factor = at::relu(magnitude + bias.to(at::kDouble)) / magnitude;
  return at::cat({parts[0] * factor, parts[1] * factor}, 1);
}

TEST(ModRelu, ValueAndGradientsMatchTheFormula) {
  for (const double offset : {-0.7, 0.0, 0.4})
    for (const bool channels_last : {false, true}) {
      const std::string what = fmt::format("bias {}", offset);
      // More rows than one task of the kernel, and a channel count that is no multiple of a vector.
      at::Tensor start = noise({3, 14, 17, 13}, 21);
      if (channels_last) start = start.contiguous(at::MemoryFormat::ChannelsLast);
      const at::Tensor x = start.requires_grad_(), bias = at::full({}, offset).requires_grad_();
      const at::Tensor y = activated(x, bias), formula = mod_relu_formula(x, bias);
      expect_close(y, formula.to(at::kFloat), 1e-5, what);
      expect_close(activated_by_reference(x, bias), formula.to(at::kFloat), 1e-5, what + ", reference");
      const at::Tensor pull = noise({3, 14, 13, 17}, 22).transpose(2, 3);
      const auto given = grad({y}, {x, bias}, {pull}, true),
                 wanted = grad({formula}, {x, bias}, {pull.to(at::kDouble)}, true);
      expect_close(given[0], wanted[0], 1e-5, what + ", gradient of x");
      expect_close(given[1], wanted[1], 1e-4, what + ", gradient of the bias");
    }
  // Away from the kink, finite differences.
  const at::Tensor x = noise({1, 8, 3, 3}, 23);
  expect_gradient([](const at::Tensor& t) { return activated(t, at::full({}, 0.3)).pow(2).sum(); }, x, 90,
                  1e-3, 3e-3, "mod_relu");
  expect_gradient([&](const at::Tensor& b) { return activated(x, b).pow(2).sum(); }, at::full({}, 0.3), 91,
                  1e-3, 3e-3, "bias");
}

TEST(ModRelu, ZeroIsHarmless) {
  for (const double offset : {-0.5, 0.5}) {
    at::Tensor start = noise({1, 4, 2, 3}, 24);
    start.select(3, 1).zero_();
    const at::Tensor x = start.requires_grad_(), bias = at::full({}, offset).requires_grad_();
    expect_close(activated(x, bias), activated_by_reference(x, bias), 1e-5, "value");
    const auto once = grad({activated(x, bias).sum()}, {x, bias});
    const auto to_differentiate = grad({activated(x, bias).sum()}, {x, bias}, {}, true, true);
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_LT(once[i].abs().max().item<double>(), 100) << offset;
      expect_close(to_differentiate[i], once[i], 1e-5,
                   "the gradient must not depend on whether it is differentiated");
    }
    const at::Tensor second = grad({to_differentiate[0].pow(2).sum()}, {x})[0];
    EXPECT_TRUE(at::isfinite(second).all().item<bool>());
  }
}

TEST(ModRelu, SecondDerivativeThroughAGradientPenalty) {
  const at::Tensor weight = noise({1, 8, 3, 3}, 25), bias = at::full({}, 0.2);
  const auto penalty = [&](const at::Tensor& x, const auto& activation, const at::Tensor& b) {
    const at::Tensor y = (activation(x, b) * weight.to(x.scalar_type())).pow(2).sum();
    const at::Tensor slope = grad({y}, {x}, {}, true, true)[0];
    return (slope.flatten(1).norm(2, {1}) - 1).square().mean();
  };
  const at::Tensor x = noise({2, 8, 3, 3}, 26).requires_grad_(), b = bias.clone().requires_grad_();
  const at::Tensor x64 = x.detach().to(at::kDouble).requires_grad_(),
                   b64 = bias.to(at::kDouble).requires_grad_();
  const auto given = grad({penalty(x, activated, b)}, {x, b});
  const auto wanted = grad({penalty(x64, mod_relu_formula, b64)}, {x64, b64});
  expect_close(given[0], wanted[0].to(at::kFloat), 1e-3, "second derivative");
  expect_close(given[1], wanted[1].to(at::kFloat), 1e-3, "second derivative to the bias");
  expect_gradient([&](const at::Tensor& t) { return penalty(t, activated, bias); }, x.detach(), 95, 1e-3,
                  1e-2, "penalty");

  // Through a whole discriminator, to its weights.
  torch::manual_seed(8);
  StftDiscriminatorConfig config;
  config.channels = 2;
  config.channel_multiples = {1, 2};
  config.frequency_strides = {1, 2};
  config.time_strides = {2, 2};
  config.n_fft = config.window = 64;
  config.hop = 16;
  StftDiscriminator judge(config);
  const at::Tensor wave = noise({2, 640}, 27).requires_grad_();
  const auto loss = [&] { return gradient_penalty(wave, hinge_generator_loss(judge(wave).logits)); };
  const std::vector<at::Tensor> parameters = judge->parameters();
  const auto gradients = grad({loss()}, parameters, {}, false, false, /*allow_unused=*/true);
  std::vector<at::Tensor> directions;
  double expected = 0, size = 0;
  for (size_t i = 0; i < parameters.size(); ++i) {
    directions.push_back(noise(parameters[i].sizes(), 300 + i) * 0.1);
    if (!gradients[i].defined()) continue;
    expected += (gradients[i] * directions[i]).sum().item<double>();
    size += gradients[i].norm().item<double>() * 0.1;
  }
  const auto moved = [&](double step) {
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < parameters.size(); ++i) at::Tensor(parameters[i]).add_(directions[i], step);
  };
  constexpr double kStep = 2e-3;
  moved(kStep);
  const double above = loss().item<double>();
  moved(-2 * kStep);
  const double below = loss().item<double>();
  EXPECT_GT(size, 0);
  EXPECT_NEAR((above - below) / (2 * kStep), expected, 0.02 * (std::abs(expected) + size));
}

TEST(MeanDistance, ValueAndGradientMatchTheFormula) {
  for (const bool with_equal : {false, true}) {
    const at::Tensor a = noise({2, 14, 17, 13}, 61).requires_grad_();
    at::Tensor other = noise({2, 14, 17, 13}, 62);
    if (with_equal) other.select(3, 4).copy_(a.detach().select(3, 4));
    const at::Tensor b = other.requires_grad_();
    const at::Tensor distance = mean_distance(pair(a), pair(b)),
                     reference = mean_distance_reference(pair(a), pair(b));
    const auto parts = (a - b).to(at::kDouble).chunk(2, 1);
    EXPECT_NEAR(distance.item<double>(),
                at::sqrt(parts[0].square() + parts[1].square()).mean().item<double>(), 1e-6);
    const auto given = grad({distance}, {a, b}), wanted = grad({reference}, {a, b});
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_TRUE(at::isfinite(given[i]).all().item<bool>());
      expect_close(given[i] * 1e3, wanted[i] * 1e3, 1e-4, "gradient");
    }
  }
  const at::Tensor b = noise({1, 8, 5, 5}, 63);
  expect_gradient([&](const at::Tensor& t) { return 100 * mean_distance(pair(t), pair(b)); },
                  noise({1, 8, 5, 5}, 64), 65, 1e-2, 1e-2, "distance");
}

}  // namespace mod_relu_test
}  // namespace melete

// Our kernels against LibTorch's operators.
#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/nn/modules/conv.h>
#include <torch/utils.h>

#include "core/autocast.h"
#include "core/engine.h"
#include "gradient_check.h"
#include "nn/conv.h"
#include "nn/dense.h"
#include "nn/multi_scale_discriminator.h"

namespace melete {
namespace kernels_test {

struct ConvCase {
  int64_t in, out, kernel, stride, dilation, time;
  std::string pad_mode = "reflect";
  Activation activation = Activation::none;
};

void PrintTo(const ConvCase& c, std::ostream* out) {
  *out << c.in << "->" << c.out << " kernel " << c.kernel << " stride " << c.stride << " dilation "
       << c.dilation << " time " << c.time << " " << c.pad_mode;
}

// By LibTorch's own padding and one-dimensional convolution.
at::Tensor reference(const ConvCase& c, CausalConv1d& conv, const at::Tensor& x) {
  const int64_t padding = c.dilation * (c.kernel - 1) + 1 - c.stride;
  at::Tensor padded = x;
  if (padding > 0)
    padded = c.pad_mode == "reflect"     ? at::reflection_pad1d(x, {padding, 0})
             : c.pad_mode == "replicate" ? at::replication_pad1d(x, {padding, 0})
                                         : at::constant_pad_nd(x, {padding, 0});
  const int64_t strides[] = {c.stride}, paddings[] = {0}, dilations[] = {c.dilation};
  const at::Tensor y = at::conv1d(padded, conv->weight, conv->bias, at::IntArrayRef(strides),
                                  at::IntArrayRef(paddings), at::IntArrayRef(dilations));
  return c.activation == Activation::elu ? at::elu(y) : y;
}

double distance(const at::Tensor& a, const at::Tensor& b) {
  EXPECT_EQ(a.sizes(), b.sizes());
  return ((a - b).norm() / (b.norm() + 1e-12)).item<double>();
}

class CausalConvTest : public ::testing::TestWithParam<ConvCase> {};

TEST_P(CausalConvTest, ForwardAndGradientsAreLibTorchs) {
  const ConvCase c = GetParam();
  torch::manual_seed(1);
  CausalConv1d conv(c.in, c.out, c.kernel, c.pad_mode, c.stride, c.dilation);
  const at::Tensor x = at::randn({3, c.in, c.time}).requires_grad_();
  const std::vector<at::Tensor> leaves{x, conv->weight, conv->bias};
  const at::Tensor y = conv(x, c.activation), wanted = reference(c, conv, x);
  ASSERT_EQ(y.sizes(), wanted.sizes());
  EXPECT_LT(distance(y, wanted), 2e-6);
  const at::Tensor gradient = at::randn_like(wanted);
  const auto ours = torch::autograd::grad({y}, leaves, {gradient});
  const auto theirs = torch::autograd::grad({wanted}, leaves, {gradient});
  for (size_t i = 0; i < leaves.size(); ++i) EXPECT_LT(distance(ours[i], theirs[i]), 5e-6) << "leaf " << i;
}

TEST_P(CausalConvTest, GradientsOfGradientsAreLibTorchs) {
  const ConvCase c = GetParam();
  torch::manual_seed(2);
  CausalConv1d conv(c.in, c.out, c.kernel, c.pad_mode, c.stride, c.dilation);
  const at::Tensor x = at::randn({2, c.in, c.time}).requires_grad_();
  const auto penalty = [&](const at::Tensor& y) {
    const auto first = torch::autograd::grad({y.square().sum()}, {x}, {}, true, true)[0];
    return torch::autograd::grad({first.square().sum()}, {x, conv->weight});
  };
  const auto ours = penalty(conv(x, c.activation)), theirs = penalty(reference(c, conv, x));
  for (size_t i = 0; i < ours.size(); ++i) EXPECT_LT(distance(ours[i], theirs[i]), 1e-5) << "leaf " << i;
}

TEST_P(CausalConvTest, Bf16IsCloseToFp32) {
  const ConvCase c = GetParam();
  torch::manual_seed(3);
  CausalConv1d conv(c.in, c.out, c.kernel, c.pad_mode, c.stride, c.dilation);
  const at::Tensor x = at::randn({2, c.in, c.time}).requires_grad_();
  const std::vector<at::Tensor> leaves{x, conv->weight, conv->bias};
  const at::Tensor wanted = reference(c, conv, x);
  at::Tensor y;
  {
    const AutocastScope scope(at::kCPU, true);
    y = conv(x, c.activation);
  }
  EXPECT_EQ(y.scalar_type(), at::kBFloat16);
  EXPECT_LT(distance(y.to(at::kFloat), wanted), 0.02);
  const at::Tensor gradient = at::randn_like(wanted);
  const auto ours = torch::autograd::grad({y}, leaves, {gradient.to(at::kBFloat16)});
  const auto theirs = torch::autograd::grad({wanted}, leaves, {gradient});
  for (size_t i = 0; i < leaves.size(); ++i)
    EXPECT_LT(distance(ours[i].to(at::kFloat), theirs[i]), 0.05) << "leaf " << i;
}

TEST_P(CausalConvTest, ThreadsDoNotChangeAnything) {
  const ConvCase c = GetParam();
  torch::manual_seed(4);
  CausalConv1d conv(c.in, c.out, c.kernel, c.pad_mode, c.stride, c.dilation);
  const at::Tensor x = at::randn({3, c.in, c.time}).requires_grad_();
  std::vector<std::vector<at::Tensor>> results;
  const int before = thread_count();
  for (const int threads : {1, 2}) {
    set_threads(threads);
    const at::Tensor y = conv(x, c.activation);
    results.push_back(torch::autograd::grad({y.square().sum()}, {x, conv->weight, conv->bias}));
    results.back().push_back(y.detach());
  }
  set_threads(before);
  if (c.out % kFrameColumns != 0 || (c.stride * c.in) % kFrameColumns != 0) return;  // LibTorch's own sums
  for (size_t i = 0; i < results[0].size(); ++i) EXPECT_TRUE(at::equal(results[0][i], results[1][i])) << i;
}

INSTANTIATE_TEST_SUITE_P(Shapes, CausalConvTest,
                         ::testing::Values(ConvCase{32, 32, 7, 1, 1, 300},
                                           ConvCase{32, 32, 7, 1, 9, 217, "reflect", Activation::elu},
                                           ConvCase{48, 16, 7, 1, 3, 100, "constant", Activation::elu},
                                           ConvCase{64, 64, 1, 1, 1, 50, "reflect", Activation::elu},
                                           ConvCase{1, 32, 7, 1, 1, 250}, ConvCase{32, 1, 7, 1, 1, 250},
                                           ConvCase{32, 64, 4, 2, 1, 100}, ConvCase{32, 64, 10, 5, 1, 95},
                                           ConvCase{16, 32, 16, 8, 1, 64, "constant"},
                                           ConvCase{32, 32, 7, 1, 3, 40, "replicate", Activation::elu},
                                           ConvCase{16, 32, 10, 5, 1, 5, "replicate"},
                                           ConvCase{32, 64, 4, 2, 1, 7}, ConvCase{16, 16, 7, 1, 1, 8},
                                           ConvCase{5, 80, 3, 1, 2, 41}, ConvCase{24, 10, 5, 1, 1, 30},
                                           ConvCase{10, 24, 1, 1, 1, 30}));

TEST(CausalConv, GradientThatIsNotContiguous) {
  torch::manual_seed(5);
  const ConvCase c{32, 32, 7, 1, 1, 40, "reflect", Activation::elu};
  CausalConv1d conv(c.in, c.out, c.kernel);
  const at::Tensor x = at::randn({2, c.in, c.time}).requires_grad_();
  // sum() hands back one number seen as a whole tensor
  const auto ours = torch::autograd::grad({conv(x, c.activation).sum()}, {x, conv->weight, conv->bias});
  const auto theirs = torch::autograd::grad({reference(c, conv, x).sum()}, {x, conv->weight, conv->bias});
  for (size_t i = 0; i < ours.size(); ++i) EXPECT_LT(distance(ours[i], theirs[i]), 5e-6);
}

TEST(CausalConv, EluOfExtremes) {
  CausalConv1d conv(1, 16, 1);
  const at::NoGradGuard no_grad;
  conv->weight.fill_(1);
  conv->bias.zero_();
  const at::Tensor x = at::tensor({0.f, -1e-8f, 1e-8f, -1e-3f, -0.34f, -0.35f, -20.f, -88.f, -1e30f, 1e30f,
                                   -INFINITY, INFINITY, 3.f, -3.f});
  const at::Tensor y = conv(x.view({1, 1, -1}), Activation::elu)[0][0];
  const at::Tensor exact = at::where(x > 0, x.to(at::kDouble), at::expm1(x.to(at::kDouble)));
  EXPECT_TRUE(at::allclose(y.to(at::kDouble), exact, 1e-6, 1e-9)) << y << exact;
  const at::Tensor unknown = at::full({1, 1, 3}, NAN);
  EXPECT_TRUE(conv(unknown, Activation::elu).isnan().all().item<bool>());
}

TEST(CausalConv, ReflectNeedsEnoughFrames) {
  CausalConv1d conv(4, 4, 7);
  EXPECT_ANY_THROW(conv(at::randn({1, 4, 6})));
  EXPECT_NO_THROW(conv(at::randn({1, 4, 7})));
}

struct TransposedCase {
  int64_t in, out, kernel, stride, time;
};

class TransposedConvTest : public ::testing::TestWithParam<TransposedCase> {};

TEST_P(TransposedConvTest, ForwardAndGradientsAreLibTorchs) {
  const TransposedCase c = GetParam();
  torch::manual_seed(6);
  CausalConvTranspose1d conv(c.in, c.out, c.kernel, c.stride);
  const at::Tensor x = at::randn({3, c.in, c.time}).requires_grad_();
  const std::vector<at::Tensor> leaves{x, conv->weight, conv->bias};
  const at::Tensor y = conv(x);
  const at::Tensor wanted =
      at::conv_transpose1d(x, conv->weight, conv->bias, {c.stride}).narrow(2, 0, c.time * c.stride);
  ASSERT_EQ(y.sizes(), wanted.sizes());
  EXPECT_LT(distance(y, wanted), 2e-6);
  const at::Tensor gradient = at::randn_like(wanted);
  const auto ours = torch::autograd::grad({y}, leaves, {gradient}, true);
  const auto theirs = torch::autograd::grad({wanted}, leaves, {gradient}, true);
  for (size_t i = 0; i < leaves.size(); ++i) EXPECT_LT(distance(ours[i], theirs[i]), 5e-6) << "leaf " << i;

  const auto penalty = [&](const at::Tensor& result) {
    const auto first = torch::autograd::grad({result.square().sum()}, {x}, {}, true, true)[0];
    return torch::autograd::grad({first.square().sum()}, {x, conv->weight});
  };
  const auto our_penalty = penalty(conv(x)), their_penalty = penalty(wanted);
  for (size_t i = 0; i < 2; ++i) EXPECT_LT(distance(our_penalty[i], their_penalty[i]), 1e-5) << "leaf " << i;
}

TEST_P(TransposedConvTest, Bf16IsCloseToFp32) {
  const TransposedCase c = GetParam();
  torch::manual_seed(7);
  CausalConvTranspose1d conv(c.in, c.out, c.kernel, c.stride);
  const at::Tensor x = at::randn({2, c.in, c.time}).requires_grad_();
  const at::Tensor wanted = conv(x);
  const AutocastScope scope(at::kCPU, true);
  const at::Tensor y = conv(x);
  EXPECT_LT(distance(y.to(at::kFloat), wanted), 0.02);
  const auto ours = torch::autograd::grad({y.to(at::kFloat).square().sum()}, {x, conv->weight, conv->bias});
  const auto theirs = torch::autograd::grad({wanted.square().sum()}, {x, conv->weight, conv->bias});
  for (size_t i = 0; i < 3; ++i) EXPECT_LT(distance(ours[i].to(at::kFloat), theirs[i]), 0.05) << "leaf " << i;
}

INSTANTIATE_TEST_SUITE_P(Shapes, TransposedConvTest,
                         ::testing::Values(TransposedCase{64, 32, 4, 2, 50},
                                           TransposedCase{32, 16, 10, 5, 21},
                                           TransposedCase{16, 16, 16, 8, 3}, TransposedCase{32, 5, 6, 3, 20},
                                           TransposedCase{16, 16, 5, 2, 30}, TransposedCase{3, 4, 4, 2, 30}));

// The features and logits by LibTorch's own strided convolutions.
std::vector<at::Tensor> reference(MultiScaleDiscriminator& judge, const at::Tensor& wave) {
  std::vector<at::Tensor> result;
  at::Tensor x = judge->input(wave);
  for (const auto& layer : *judge->layers) {
    x = at::leaky_relu(layer->as<torch::nn::Conv1dImpl>()->forward(x), 0.1);
    result.push_back(x);
  }
  result.push_back(judge->output(at::leaky_relu(judge->hidden(x), 0.1)));
  return result;
}

TEST(MultiScaleDiscriminator, IsLibTorchsConvolutionsAtEveryLength) {
  torch::manual_seed(8);
  MultiScaleDiscriminatorConfig config;
  config.max_channels = 256;
  config.layers = 3;
  MultiScaleDiscriminator judge(config);
  for (const int64_t samples : {1, 40, 41, 1000, 1001, 1002, 1003}) {
    const at::Tensor wave = at::randn({2, 1, samples}).requires_grad_();
    const Judgement judgement = judge(wave);
    std::vector<at::Tensor> ours = judgement.features;
    ours.push_back(judgement.logits);
    const auto theirs = reference(judge, wave);
    ASSERT_EQ(ours.size(), theirs.size());
    for (size_t i = 0; i < ours.size(); ++i) EXPECT_LT(distance(ours[i], theirs[i]), 1e-5) << samples;

    const auto penalty = [&](const at::Tensor& logits) {
      const auto first = torch::autograd::grad({logits.square().sum()}, {wave}, {}, true, true)[0];
      return torch::autograd::grad({first.norm()}, {judge->input->weight})[0];
    };
    EXPECT_LT(distance(penalty(ours.back()), penalty(theirs.back())), 1e-4) << samples;
  }
}

struct DenseCase {
  std::vector<int64_t> shape;  // of x
  int64_t out;
  bool bias;
};

// Rows that a weight's gradient takes at once and more of them, outputs in vectors and not, a narrowed weight
// and gradients that are not contiguous.
TEST(Dense, ForwardAndGradientsAreLibTorchs) {
  for (const DenseCase& c : {DenseCase{{300, 48}, 64, true}, DenseCase{{3, 171, 37}, 34, false},
                             DenseCase{{2, 5, 16}, 1, true}, DenseCase{{1, 256}, 32, true}}) {
    const int64_t in = c.shape.back();
    const at::Tensor whole = noise({c.out, in + 7}, 2), above = noise({c.out, 600}, 4);
    const auto run = [&](at::ScalarType type, bool by_operators) {
      const at::Tensor x = noise(c.shape, 1).to(type).requires_grad_();
      const at::Tensor all = whole.to(type).requires_grad_(), weight = all.narrow(1, 3, in);
      const at::Tensor bias = c.bias ? noise({c.out}, 3).to(type).requires_grad_() : at::Tensor();
      const at::Tensor y = by_operators ? at::linear(x, weight, bias) : dense(x, weight, bias);
      const int64_t rows = y.numel() / c.out;
      std::vector<at::Tensor> inputs = {x, all};
      if (c.bias) inputs.push_back(bias);
      std::vector<at::Tensor> results =
          torch::autograd::grad({y.reshape({rows, c.out})}, inputs, {above.narrow(1, 0, rows).t().to(type)});
      results.push_back(y);
      return results;
    };
    const auto given = run(at::kFloat, false), expected = run(at::kDouble, true);
    for (size_t i = 0; i < given.size(); ++i) expect_close(given[i], expected[i], 5e-6);
  }
}

TEST(Dense, GradientsOfGradientsAreLibTorchs) {
  const auto run = [&](bool by_operators) {
    const at::Tensor x = noise({40, 24}, 1).requires_grad_(), weight = noise({16, 24}, 2).requires_grad_();
    const at::Tensor y = by_operators ? at::linear(x, weight) : dense(x, weight, {});
    const at::Tensor slope = torch::autograd::grad({y.square().sum()}, {x}, {}, true, true)[0];
    return torch::autograd::grad({slope.square().sum()}, {x, weight});
  };
  const auto given = run(false), expected = run(true);
  for (size_t i = 0; i < given.size(); ++i) expect_close(given[i], expected[i], 1e-5);
}

TEST(Dense, NoGradientForFrozenWeights) {
  const at::Tensor x = noise({40, 24}, 1).requires_grad_(), weight = noise({16, 24}, 2);
  const at::Tensor y = dense(x, weight, {});
  y.sum().backward();
  EXPECT_FALSE(weight.grad().defined());
  expect_close(x.grad(), weight.sum(0).expand({40, 24}), 1e-5);
}

}  // namespace kernels_test
}  // namespace melete

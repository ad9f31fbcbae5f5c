// The kernels of transformers' steps against plain operators in double precision.
#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/utils.h>

#include <cmath>
#include <limits>

#include "core/autocast.h"
#include "gradient_check.h"
#include "kernels/gated_gelu.h"
#include "kernels/vector_math.h"
#include "nn/activation.h"
#include "nn/position_bias.h"
#include "nn/transformer_step.h"

namespace melete {
namespace step_kernels_test {

TEST(VectorMath, ExpAndErfAreExactEnough) {
  for (double x = -86.9; x < 88; x += 0.0137) {
    const float a = static_cast<float>(x);
    EXPECT_NEAR(exp_of(a) / std::exp(static_cast<double>(a)), 1, 2e-7) << x;
  }
  for (double x = -6; x < 6; x += 0.00137) {
    const float a = static_cast<float>(x);
    EXPECT_NEAR(erf_of(a), std::erf(static_cast<double>(a)), 5e-7 * std::abs(std::erf(x)) + 1e-12) << x;
  }
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(exp_of(-infinity), 0);
  EXPECT_EQ(exp_of(infinity), infinity);
  EXPECT_TRUE(std::isnan(exp_of(std::nanf(""))));
  EXPECT_TRUE(std::isnan(erf_of(std::nanf(""))));
}

TEST(GatedGelu, ValuesAndGradients) {
  torch::manual_seed(2);
  for (const int64_t n : {1, 7, 40})
    for (const GateOrder order : {GateOrder::value_first, GateOrder::gate_first}) {
      const at::Tensor x = (at::randn({3, 5, 2 * n}) * 3).requires_grad_();
      const at::Tensor wide = x.detach().to(at::kDouble).requires_grad_();
      const auto halves = wide.chunk(2, -1);
      const at::Tensor expected =
          order == GateOrder::value_first ? halves[0] * at::gelu(halves[1]) : at::gelu(halves[0]) * halves[1];
      const at::Tensor y = gated_gelu(x, order);
      expect_close(y, expected, 1e-6);
      const at::Tensor g =
          at::randn({n, 5, 3}).permute({2, 1, 0});  // not contiguous: LibTorch's own is wrong
      expect_close(torch::autograd::grad({y}, {x}, {g})[0],
                   torch::autograd::grad({expected}, {wide}, {g.to(at::kDouble)})[0], 1e-6);
    }
}

TEST(GatedGelu, Bfloat16RoundsOnce) {
  torch::manual_seed(3);
  const auto order = GateOrder::value_first;
  const at::Tensor x = at::randn({4, 66}).to(at::kBFloat16);
  const at::Tensor y = gated_gelu_forward(x, order);
  ASSERT_EQ(y.scalar_type(), at::kBFloat16);
  EXPECT_TRUE(y.equal(gated_gelu_forward(x.to(at::kFloat), order).to(at::kBFloat16)));
  const at::Tensor g = at::randn({4, 33}).to(at::kBFloat16);
  EXPECT_TRUE(gated_gelu_backward(g, x, order)
                  .equal(gated_gelu_backward(g.to(at::kFloat), x.to(at::kFloat), order).to(at::kBFloat16)));
  const at::Tensor broken = at::full({1, 2}, std::nan(""), at::kBFloat16);
  EXPECT_TRUE(gated_gelu_forward(broken, order).isnan().all().item<bool>());
}

// One position after another gives what all at once give, whatever the condition, masks and batch.
TEST(TransformerStep, EqualsTheWholeSequence) {
  torch::manual_seed(5);
  const at::NoGradGuard no_grad;
  for (const char* condition : {"none", "cross", "prefix"})
    for (const bool masked : {false, true}) {
      TransformerConfig config;
      config.dim = 24;
      config.depth = 2;
      config.heads = 3;
      config.head_dim = 10;
      config.condition = condition;
      Transformer model(config);
      for (at::Tensor& p : model->parameters()) p.add_(at::randn_like(p) * 0.1);
      const int64_t batch = 2, n = 9, beginning = 3;
      const at::Tensor x = at::randn({batch, n, config.dim});
      const at::Tensor table = at::randn({n, config.heads});
      Context context;
      at::Tensor seen;
      if (config.condition != "none") context.values = at::randn({batch, 4, config.dim});
      if (masked) {
        seen = at::rand({batch, n}) < 0.7;
        seen.select(1, 0).fill_(true);
        if (context.values.defined()) {
          context.mask = at::rand({batch, 4}) < 0.5;
          context.mask.select(1, 0).fill_(true);
        }
      }
      const at::Tensor expected = model(x, causal_bias(table, 0, n), seen, context);
      TransformerCache cache(config, batch, n + (config.condition == "prefix" ? 4 : 0));
      const at::Tensor first = seen.defined() ? seen.narrow(1, 0, beginning) : seen;
      model(x.narrow(1, 0, beginning), causal_bias(table, 0, beginning), first, context, nullptr, &cache);
      ASSERT_TRUE(TransformerStep::fits(*model, batch));
      TransformerStep step(*model, n, seen, context, WeightStorage::float32);
      for (int64_t i = beginning; i < n; ++i)
        expect_close(step.forward(x.select(1, i), causal_bias(table, i, i + 1).squeeze(0), cache),
                     expected.select(1, i), 1e-5);
    }
}

TEST(TransformerStep, Bfloat16WeightsAreThoseOfARoundedModel) {
  torch::manual_seed(6);
  const at::NoGradGuard no_grad;
  TransformerConfig config;
  config.dim = 40;
  config.depth = 2;
  config.heads = 2;
  config.head_dim = 16;
  Transformer model(config);
  const at::Tensor x = at::randn({1, 4, config.dim}), table = at::randn({4, config.heads});
  TransformerCache cache(config, 1, 4);
  for (at::Tensor& p : model->parameters())
    if (p.dim() == 2) p.copy_(p.to(at::kBFloat16));
  const at::Tensor expected = model->forward(x, causal_bias(table, 0, 4), {}, {});
  model->forward(x.narrow(1, 0, 3), causal_bias(table, 0, 3), {}, {}, nullptr, &cache);
  TransformerStep step(*model, 4, {}, {}, WeightStorage::bf16);
  expect_close(step.forward(x.select(1, 3), causal_bias(table, 3, 4).squeeze(0), cache),
               expected.select(1, 3), 1e-5);
}

TEST(TransformerStep, LeavesOtherArithmeticToTheModel) {
  TransformerConfig config;
  config.dim = 8;
  config.depth = 1;
  config.heads = 1;
  config.head_dim = 8;
  Transformer model(config);
  EXPECT_TRUE(TransformerStep::fits(*model, kFewRows));
  EXPECT_FALSE(TransformerStep::fits(*model, kFewRows + 1));
  const AutocastScope autocast(at::kCPU, true);
  EXPECT_FALSE(TransformerStep::fits(*model, 1));
}

}  // namespace step_kernels_test
}  // namespace melete

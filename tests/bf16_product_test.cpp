// Products whose factors are rounded to bf16, against double precision with the same rounding.
#include <gtest/gtest.h>
#include <torch/utils.h>

#include "core/autocast.h"
#include "gradient_check.h"
#include "kernels/bf16_product.h"
#include "nn/attention.h"
#include "nn/dense.h"

namespace melete {
namespace bf16_product_test {

bool is_there() {
  return has_bf16_product(at::ones({1, 1}), at::ones({1, 1}));
}

at::Tensor rounded(const at::Tensor& x) {
  return x.to(at::kBFloat16).to(at::kDouble);
}

TEST(Bf16Product, IsThatOfTheRoundedFactors) {
  if (!is_there()) GTEST_SKIP() << "this processor has no bf16 instructions";
  torch::manual_seed(1);
  for (const int64_t rows : {1, 11, 12, 13, 200})
    for (const int64_t in : {1, 2, 31, 33, 64, 300})
      for (const int64_t out : {1, 16, 31, 32, 33, 65}) {
        SCOPED_TRACE(fmt::format("{} x {} x {}", rows, in, out));
        const at::Tensor x = at::randn({rows, in}), weight = at::randn({out, in}), bias = at::randn({out}),
                         above = at::randn({rows, out});
        expect_close(bf16_rows_by_weight(x, weight, bias), rounded(x).mm(rounded(weight).t()) + bias, 1e-5);
        expect_close(bf16_rows_by_weight(x, weight, {}), rounded(x).mm(rounded(weight).t()), 1e-5);
        expect_close(bf16_rows_gradient(above, weight), rounded(above).mm(rounded(weight)), 1e-5);
        expect_close(bf16_weight_gradient(above, x), rounded(above).t().mm(rounded(x)), 1e-5);
      }
}

TEST(Bf16Product, TakesAnyStridesAndThreads) {
  if (!is_there()) GTEST_SKIP() << "this processor has no bf16 instructions";
  torch::manual_seed(2);
  const at::Tensor wide = at::randn({3, 150, 90}), weight = at::randn({70, 160}).narrow(1, 30, 50);
  const at::Tensor x = wide.narrow(2, 20, 50);
  const at::Tensor expected = bf16_rows_by_weight(x.contiguous(), weight.contiguous(), {});
  EXPECT_EQ(expected.sizes(), at::IntArrayRef({3, 150, 70}));
  EXPECT_TRUE(bf16_rows_by_weight(x, weight, {}).equal(expected));
  EXPECT_TRUE(bf16_rows_by_weight(x.transpose(0, 1), weight, {}).equal(expected.transpose(0, 1)));
  const int threads = at::get_num_threads();
  for (const int count : {1, 2, 3}) {
    at::set_num_threads(count);
    EXPECT_TRUE(bf16_rows_by_weight(x, weight, {}).equal(expected)) << count << " threads";
  }
  at::set_num_threads(threads);
}

// Under autocast a layer takes what a convolution left in bf16 and gives float32, whatever the processor has.
TEST(Bf16Product, ALayerGivesFloatUnderAutocast) {
  torch::manual_seed(3);
  at::Tensor x = at::randn({2, 40, 64}).set_requires_grad(true);
  at::Tensor weight = at::randn({48, 64}).set_requires_grad(true);
  at::Tensor bias = at::randn({48}).set_requires_grad(true);
  const at::Tensor exact = dense(x, weight, bias), above = at::randn({2, 40, 48});
  const auto expected = torch::autograd::grad({exact}, {x, weight, bias}, {above});
  at::Tensor y;
  {
    const AutocastScope scope(at::kCPU, true);
    y = dense(x, weight, bias);
    EXPECT_EQ(y.scalar_type(), at::kFloat);
    EXPECT_EQ(dense(x.detach().to(at::kBFloat16), weight, bias).scalar_type(), at::kFloat);
  }
  expect_close(y, exact, 1e-2);
  const auto gradients = torch::autograd::grad({y}, {x, weight, bias}, {above});
  for (size_t i = 0; i < expected.size(); ++i) expect_close(gradients[i], expected[i], 1e-2);
}

TEST(Bf16Product, AttentionUnderAutocastIsNearTheExactOne) {
  torch::manual_seed(4);
  for (const int64_t queries : {1, 13, 50})
    for (const int64_t kv_heads : {1, 2, 4})
      for (const bool causal : {false, true}) {
        SCOPED_TRACE(fmt::format("{} queries, {} key heads, {}", queries, kv_heads, causal));
        at::Tensor q = at::randn({2, queries, 4, 32}).set_requires_grad(true);
        at::Tensor k = at::randn({2, 57, kv_heads, 32}).set_requires_grad(true);
        at::Tensor v = at::randn({2, 57, kv_heads, 32}).set_requires_grad(true);
        AttentionOptions how;
        how.scale = 0.2;
        how.causal = causal;
        how.hidden = at::zeros({2, 57}, at::kBool);
        how.hidden[1].slice(0, 0, 5).fill_(true);
        const at::Tensor exact = attend(q, k, v, how), above = at::randn_like(exact);
        const auto expected = torch::autograd::grad({exact}, {q, k, v}, {above});
        const AutocastScope scope(at::kCPU, true);
        const at::Tensor mixed = attend(q, k, v, how);
        EXPECT_EQ(mixed.scalar_type(), at::kFloat);
        expect_close(mixed, exact, 1e-2);
        const auto gradients = torch::autograd::grad({mixed}, {q, k, v}, {above});
        for (size_t i = 0; i < expected.size(); ++i) expect_close(gradients[i], expected[i], 2e-2);
        const at::NoGradGuard no_grad;
        expect_close(attend(q, k, v, how), mixed, 1e-6);
      }
}

}  // namespace bf16_product_test
}  // namespace melete

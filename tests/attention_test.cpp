// Attention: the kernel against LibTorch's operators in double precision, and what must hold of both.
#include "nn/attention.h"

#include <gtest/gtest.h>
#include <torch/autograd.h>

#include <limits>

#include "core/engine.h"
#include "gradient_check.h"
#include "kernels/attention.h"
#include "nn/draws.h"

namespace melete {
namespace attention_test {

struct AttentionCase {
  int64_t queries, keys, heads, kv_heads, dim;
  bool causal, bias, hidden;
};

void PrintTo(const AttentionCase& c, std::ostream* out) {
  *out << c.queries << " x " << c.keys << ", " << c.heads << " over " << c.kv_heads << " heads of " << c.dim
       << (c.causal ? ", causal" : "") << (c.bias ? ", bias" : "") << (c.hidden ? ", hidden" : "");
}

class AttentionTest : public ::testing::TestWithParam<AttentionCase> {
 protected:
  AttentionTest() {
    const auto& c = GetParam();
    how_.scale = 0.4;
    how_.causal = c.causal;
    if (c.bias) how_.bias = noise({c.queries, c.heads, c.keys}, 4).requires_grad_();
    if (c.hidden) {
      how_.hidden = noise({kBatch, c.keys}, 5) < -0.5;
      how_.hidden[0][0].fill_(false);
      how_.hidden[1].narrow(0, 0, 3).fill_(true);  // a query that sees nothing else weighs them equally
    }
  }

  at::Tensor queries() const {
    const auto& c = GetParam();
    return noise({kBatch, c.queries, c.heads, c.dim}, 1);
  }
  // Keys and values of every position side by side, as a projection gives them: [batch, keys, 2, kv_heads,
  // dim]
  at::Tensor pairs() const {
    const auto& c = GetParam();
    return noise({kBatch, c.keys, 2, c.kv_heads, c.dim}, 2);
  }

  // The value, and the gradients of q, the pairs and the bias.
  static std::vector<at::Tensor> results(const at::Tensor& q, const at::Tensor& pairs,
                                         const at::Tensor& above, const AttentionOptions& how) {
    const at::Tensor y = attend(q, pairs.select(2, 0), pairs.select(2, 1), how);
    std::vector<at::Tensor> inputs = {q, pairs};
    if (how.bias.defined()) inputs.push_back(how.bias);
    std::vector<at::Tensor> all = torch::autograd::grad({y}, inputs, {above});
    all.insert(all.begin(), y.detach());
    return all;
  }

  static constexpr int64_t kBatch = 2;
  AttentionOptions how_;
};

TEST_P(AttentionTest, EqualsOperatorsInDoublePrecision) {
  const auto& c = GetParam();
  const at::Tensor q = queries(), kv = pairs(), above = noise({kBatch, c.queries, c.heads * c.dim}, 3);
  const auto found = results(q.clone().requires_grad_(), kv.clone().requires_grad_(), above, how_);
  AttentionOptions wide = how_;
  if (c.bias) wide.bias = how_.bias.detach().to(at::kDouble).requires_grad_();
  const auto right = results(q.to(at::kDouble).requires_grad_(), kv.to(at::kDouble).requires_grad_(),
                             above.to(at::kDouble), wide);
  ASSERT_EQ(found.size(), right.size());
  for (size_t i = 0; i < found.size(); ++i) expect_close(found[i], right[i], 1e-5, std::to_string(i));
}

// LibTorch 2's fused attention, which other devices take: the same values and gradients.
TEST_P(AttentionTest, TheFusedOneIsTheSame) {
  if (!has_fused_attention(how_)) GTEST_SKIP() << "this LibTorch has none, or none for this case";
  const auto& c = GetParam();
  const at::Tensor above = noise({kBatch, c.queries, c.heads * c.dim}, 3);
  const auto results_by = [&](auto attend_somehow) {
    std::vector<at::Tensor> inputs = {queries().requires_grad_(), pairs().requires_grad_()};
    const at::Tensor y = attend_somehow(inputs[0], inputs[1].select(2, 0), inputs[1].select(2, 1), how_);
    if (c.bias) inputs.push_back(how_.bias);
    std::vector<at::Tensor> all = torch::autograd::grad({y}, inputs, {above});
    all.push_back(y.detach());
    return all;
  };
  const auto fused = results_by(attend_fused), plain = results_by(attend_by_operators);
  for (size_t i = 0; i < plain.size(); ++i) expect_close(fused[i], plain[i], 1e-5, std::to_string(i));
}

// Queries, keys and values as views of one projection, a gradient that is not contiguous: the same bits.
// Widths that only the operators know go through LibTorch's matrix products, which choose another kernel for
// other strides on some processors.
TEST_P(AttentionTest, TakesAnyStrides) {
  const auto& c = GetParam();
  const at::Tensor q = queries(), kv = pairs(), above = noise({c.heads * c.dim, c.queries, kBatch}, 3);
  const auto plain = results(q.clone().requires_grad_(), kv.clone().requires_grad_(),
                             above.permute({2, 1, 0}).contiguous(), how_);
  const at::Tensor beside = at::cat({q, at::ones_like(q)}, 2).narrow(2, 0, c.heads).requires_grad_();
  const at::Tensor turned = kv.permute({4, 3, 2, 1, 0}).contiguous().permute({4, 3, 2, 1, 0});
  const auto strided = results(beside, turned.requires_grad_(), above.permute({2, 1, 0}), how_);
  for (size_t i = 0; i < plain.size(); ++i) {
    if (has_attention_kernel(q)) {
      EXPECT_TRUE(plain[i].equal(strided[i])) << i;
    } else {
      expect_close(plain[i], strided[i], 1e-6, std::to_string(i));
    }
  }
}

TEST_P(AttentionTest, ThreadsDoNotChangeAnything) {
  const auto& c = GetParam();
  const at::Tensor q = queries().requires_grad_(), kv = pairs().requires_grad_();
  const at::Tensor above = noise({kBatch, c.queries, c.heads * c.dim}, 3);
  const int before = thread_count();
  set_threads(1);
  const auto one = results(q, kv, above, how_);
  set_threads(3);
  const auto three = results(q, kv, above, how_);
  set_threads(before);
  for (size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(one[i].equal(three[i])) << i;
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, AttentionTest,
    ::testing::Values(AttentionCase{5, 5, 3, 1, 64, true, true, false},  // one key head
                      AttentionCase{65, 65, 3, 1, 64, true, false, false},
                      AttentionCase{130, 130, 3, 1, 64, true, true, true},
                      AttentionCase{70, 83, 3, 1, 64, true, true, true},  // a prefix before the queries
                      AttentionCase{1, 40, 3, 1, 64, true, true, false},
                      AttentionCase{9, 17, 3, 1, 64, false, false, true},
                      AttentionCase{67, 3, 3, 1, 64, false, true, false},
                      AttentionCase{1550, 1550, 2, 1, 32, true, false, false},  // 16 shares
                      AttentionCase{65, 65, 4, 4, 64, true, false, false},      // a key head for each
                      AttentionCase{130, 130, 3, 3, 32, true, true, true},
                      AttentionCase{33, 47, 8, 8, 64, false, true, true},
                      AttentionCase{1, 40, 4, 4, 64, true, false, true},
                      AttentionCase{65, 65, 6, 2, 64, true, false, true},  // and in between
                      AttentionCase{50, 61, 8, 2, 32, true, true, false},
                      AttentionCase{47, 33, 6, 3, 96, false, true, true},
                      AttentionCase{40, 40, 4, 2, 40, true, true, true},  // heads of other widths
                      AttentionCase{31, 45, 4, 4, 8, false, false, true},
                      AttentionCase{31, 45, 2, 1, 5, false, true, false}));

// softmax(q k^T * scale + bias) v with the loops that the formula has.
TEST(Attention, FollowsTheFormula) {
  const int64_t batch = 2, n = 4, keys = 6, heads = 4, kv_heads = 2, dim = 32;
  const at::Tensor q = noise({batch, n, heads, dim}, 1), k = noise({batch, keys, kv_heads, dim}, 2),
                   v = noise({batch, keys, kv_heads, dim}, 3);
  AttentionOptions how;
  how.scale = 0.2;
  how.causal = true;
  how.bias = noise({n, 1, keys}, 4);
  const at::Tensor y = attend(q, k, v, how);
  for (int64_t item = 0; item < batch; ++item)
    for (int64_t query = 0; query < n; ++query)
      for (int64_t head = 0; head < heads; ++head) {
        const int64_t seen = query + 1 + keys - n;
        const auto of = [&](const at::Tensor& x) {
          return x[item].select(1, head % kv_heads).narrow(0, 0, seen);
        };
        const at::Tensor scores =
            at::mv(of(k), q[item][query][head]) * how.scale + how.bias[query][0].narrow(0, 0, seen);
        const at::Tensor expected = at::mv(of(v).t(), scores.softmax(0));
        expect_close(y[item][query].narrow(0, head * dim, dim), expected, 1e-5);
      }
}

TEST(Attention, GradientEqualsDifferences) {
  AttentionOptions how;
  how.scale = 0.3;
  how.causal = true;
  how.hidden = at::zeros({2, 30}, at::kBool);
  how.hidden[1].narrow(0, 4, 3).fill_(true);
  const at::Tensor q = noise({2, 30, 4, 32}, 1), k = noise({2, 30, 2, 32}, 2), v = noise({2, 30, 2, 32}, 3),
                   bias = noise({30, 1, 30}, 4), weight = noise({2, 30, 128}, 5);
  const auto loss = [&](const at::Tensor& a, const at::Tensor& b, const at::Tensor& c, const at::Tensor& d) {
    AttentionOptions with = how;
    with.bias = d;
    return (attend(a, b, c, with) * weight).sum(at::kDouble);
  };
  expect_gradient([&](const at::Tensor& x) { return loss(x, k, v, bias); }, q, 10, 1e-2, 2e-3, "q");
  expect_gradient([&](const at::Tensor& x) { return loss(q, x, v, bias); }, k, 20, 1e-2, 2e-3, "k");
  expect_gradient([&](const at::Tensor& x) { return loss(q, k, x, bias); }, v, 30, 1e-2, 2e-3, "v");
  expect_gradient([&](const at::Tensor& x) { return loss(q, k, v, x); }, bias, 40, 1e-2, 2e-3, "bias");
}

// A bias of -inf hides a key as `causal` does, for the kernel and for the operators.
TEST(Attention, InfiniteBiasHides) {
  const at::Tensor q = noise({1, 20, 2, 32}, 1), k = noise({1, 20, 2, 32}, 2), v = noise({1, 20, 2, 32}, 3);
  AttentionOptions flag, bias;
  flag.causal = true;
  bias.bias = at::zeros({20, 1, 20})
                  .masked_fill(at::ones({20, 20}, at::kBool).triu(1).unsqueeze(1),
                               -std::numeric_limits<double>::infinity());
  for (const auto& how : {flag, bias}) {
    expect_close(attend(q, k, v, how), attend(q, k, v, flag), 1e-6);
    expect_close(attend_by_operators(q, k, v, how), attend(q, k, v, flag), 1e-5);
  }
}

TEST(Attention, DropoutLeavesOutWeights) {
  const at::Tensor q = noise({1, 50, 2, 32}, 1), k = noise({1, 50, 2, 32}, 2);
  SeededDraws draws(7);
  AttentionOptions how;
  how.dropout = 0.5;
  how.draws = &draws;
  const at::Tensor kept =
      attend(q, k, at::ones({1, 50, 2, 32}), how);  // the sum of the weights that are left
  EXPECT_NEAR(kept.mean().item<double>(), 1, 0.2);
  EXPECT_GT(kept.std().item<double>(), 0.01);
}

TEST(Attention, RefusesWhatItCannotRead) {
  const at::Tensor q = at::zeros({1, 4, 3, 32});
  EXPECT_ANY_THROW(attend(q, at::zeros({1, 4, 2, 32}), at::zeros({1, 4, 2, 32}), {}));
  AttentionOptions causal;
  causal.causal = true;
  EXPECT_ANY_THROW(attend(q, at::zeros({1, 3, 32}), at::zeros({1, 3, 32}), causal));
}

}  // namespace attention_test
}  // namespace melete

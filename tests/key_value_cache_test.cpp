// One position over a cache: the kernel reads what attention over all of it would.
#include "nn/key_value_cache.h"

#include <gtest/gtest.h>

#include "core/base/error.h"
#include "gradient_check.h"

namespace melete {
namespace key_value_cache_test {

constexpr int64_t kRows = 3, kLength = 9;

// Filled in two pieces, with room to spare, so that rows do not lie side by side.
KeyValueCache filled(int64_t kv_heads, int64_t dim) {
  const at::Tensor k = noise({kRows, kLength, kv_heads, dim}, 2),
                   v = noise({kRows, kLength, kv_heads, dim}, 3);
  KeyValueCache cache(kRows, kLength + 4, kv_heads, dim);
  cache.append(k.narrow(1, 0, 5), v.narrow(1, 0, 5));
  cache.append(k.narrow(1, 5, kLength - 5), v.narrow(1, 5, kLength - 5));
  EXPECT_TRUE(cache.read_keys().equal(k) && cache.read_values().equal(v));
  return cache;
}

TEST(KeyValueCache, OnePositionEqualsAttentionOverAll) {
  const at::NoGradGuard no_grad;
  for (const auto& [heads, kv_heads] : {std::pair<int64_t, int64_t>{4, 1}, {4, 2}, {4, 4}, {6, 3}, {1, 1}})
    for (const int64_t dim : {5, 32, 64})
      for (const bool bias : {false, true})
        for (const bool hidden : {false, true}) {
          const KeyValueCache cache = filled(kv_heads, dim);
          AttentionOptions how;
          how.scale = 0.3;
          if (bias) how.bias = noise({1, heads, kLength}, 4);
          if (hidden) {
            how.hidden = noise({kRows, kLength}, 5) < 0;
            how.hidden.select(1, 0).fill_(false);
          }
          const at::Tensor q = noise({kRows, heads, dim}, 1);
          const at::Tensor expected =
              attend_by_operators(q.unsqueeze(1), cache.read_keys(), cache.read_values(), how).squeeze(1);
          const at::Tensor got = attend_one(q, cache, how);
          ASSERT_EQ(got.sizes(), expected.sizes());
          EXPECT_LT((got - expected).abs().max().item<double>(), 2e-6)
              << heads << " over " << kv_heads << " heads of " << dim << (bias ? ", bias" : "")
              << (hidden ? ", hidden" : "");
        }
}

// A bias that all heads share, as cross attention or a causal mask has it.
TEST(KeyValueCache, OneBiasServesAllHeads) {
  const at::NoGradGuard no_grad;
  const KeyValueCache cache = filled(2, 16);
  AttentionOptions shared, each;
  shared.bias = noise({1, 1, kLength}, 4);
  each.bias = shared.bias.expand({1, 4, kLength}).contiguous();
  const at::Tensor q = noise({kRows, 4, 16}, 1);
  EXPECT_TRUE(attend_one(q, cache, shared).equal(attend_one(q, cache, each)));
}

TEST(KeyValueCache, RowsGoOnInTheOrderThatIsAsked) {
  const at::NoGradGuard no_grad;
  KeyValueCache cache = filled(2, 8);
  const at::Tensor q = noise({kRows, 4, 8}, 1), before = attend_one(q, cache, {});
  const at::Tensor order = at::tensor({2, 0, 2}, at::kLong);
  cache.keep_rows(order);
  EXPECT_TRUE(attend_one(q.index_select(0, order), cache, {}).equal(before.index_select(0, order)));
  cache.length = 4;  // the last ones are forgotten
  EXPECT_EQ(cache.read_keys().size(1), 4);
  EXPECT_FALSE(attend_one(q, cache, {}).equal(before));
}

TEST(KeyValueCache, RefusesMoreThanItHolds) {
  KeyValueCache cache(1, 3, 1, 4);
  cache.append(at::zeros({1, 3, 1, 4}), at::zeros({1, 3, 1, 4}));
  EXPECT_THROW(cache.append(at::zeros({1, 1, 1, 4}), at::zeros({1, 1, 1, 4})), Error);
}

// With gradients it takes the operators, and they are right.
TEST(KeyValueCache, GradientsReachTheQuery) {
  const KeyValueCache cache = filled(2, 8);
  expect_gradient(
      [&](const at::Tensor& q) {
        AttentionOptions how;
        how.scale = 0.5;
        return attend_one(q, cache, how).pow(2).sum();
      },
      noise({kRows, 4, 8}, 1), 20, 1e-2, 2e-3, "q");
}

}  // namespace key_value_cache_test
}  // namespace melete

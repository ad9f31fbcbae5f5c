// Attention and its gradient: blocks of queries, each with only the keys that its queries can see, so that a
// causal model computes half. float32 on the CPU; the result is the same on any number of threads.
#pragma once

#include <ATen/ATen.h>

namespace melete {

// Whether it takes these queries: float32 on the CPU, and heads of a width in multiples of 32.
bool has_attention_kernel(const at::Tensor& q);

struct AttentionInput {
  at::Tensor q;       // [batch, queries, heads, dim]
  at::Tensor k, v;    // [batch, keys, kv_heads, dim]; query head h reads key head h % kv_heads
  at::Tensor bias;    // [queries, heads, keys] or undefined; -inf hides a key
  at::Tensor hidden;  // bool [batch, keys] or undefined: keys that no query of that row sees
  double scale = 1;
  bool causal = false;  // query i sees keys up to i + keys - queries
  bool round = false;   // factors of the products to bf16, where the processor has instructions for that
};

struct AttentionOutput {
  at::Tensor mixed;    // [batch, queries, heads * dim]
  at::Tensor weights;  // [batch, kv_heads, rows, keys and room]: for the gradient, not filled where unseen
};
// Without the weights, which no one needs but the gradient, a block's scores stay in the cache.
AttentionOutput attention_forward(const AttentionInput& input, bool keep_weights);

struct AttentionGradient {
  at::Tensor q, k, v;
  at::Tensor bias;  // undefined unless asked for
};
AttentionGradient attention_backward(const AttentionInput& input, const at::Tensor& weights,
                                     const at::Tensor& gradient, bool bias_gradient);

}  // namespace melete

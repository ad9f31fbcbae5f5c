// Attention of many query heads over one key and one value head, with its gradient: blocks of queries, each
// with only the keys that its queries can see, so that a causal model computes half. float32 on the CPU.
#pragma once

#include <ATen/ATen.h>

namespace melete {

// Whether it takes these queries: float32 on the CPU, and heads of a width in multiples of 32.
bool has_shared_attention(const at::Tensor& q);

struct SharedAttentionInput {
  at::Tensor q;       // [batch, queries, heads, dim]
  at::Tensor k, v;    // [batch, keys, dim]
  at::Tensor bias;    // [queries, heads, keys] or undefined; -inf hides a key
  at::Tensor hidden;  // bool [batch, keys] or undefined: keys that no query of that row sees
  double scale = 1;
  bool causal = false;  // query i sees keys up to i + keys - queries
};

struct SharedAttentionOutput {
  at::Tensor mixed;    // [batch, queries, heads * dim]
  at::Tensor weights;  // [batch, queries * heads, keys and room]: for the gradient, not filled where unseen
};
SharedAttentionOutput shared_attention_forward(const SharedAttentionInput& input);

struct SharedAttentionGradient {
  at::Tensor q, k, v;
  at::Tensor bias;  // undefined unless asked for
};
SharedAttentionGradient shared_attention_backward(const SharedAttentionInput& input,
                                                  const at::Tensor& weights, const at::Tensor& gradient,
                                                  bool bias_gradient);

}  // namespace melete

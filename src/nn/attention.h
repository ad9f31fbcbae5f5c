// Attention behind one function: a blockwise kernel where there is one, LibTorch's operators elsewhere.
#pragma once

#include <ATen/ATen.h>

namespace melete {

class Draws;

struct AttentionOptions {
  double scale = 1;
  at::Tensor bias;      // [queries, heads or 1, keys] or undefined, added to the scores; -inf hides a key
  at::Tensor hidden;    // bool [batch, keys] or undefined: keys that no query of that row sees
  bool causal = false;  // query i sees keys up to i + keys - queries, so there are no fewer keys than queries
  double dropout = 0;
  Draws* draws = nullptr;
};

// q [batch, queries, heads, dim]; k and v [batch, keys, kv_heads, dim], or [batch, keys, dim] for one head
// that all share. Query head h reads key head h % kv_heads. -> [batch, queries, heads * dim]
at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionOptions& how);

// The same by LibTorch's operators: what attend() takes on other devices, with dropout and for other types.
// Here k and v always have their heads.
at::Tensor attend_by_operators(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                               const AttentionOptions& how);

// The same by LibTorch 2's fused kernels, which attend() takes on other devices where they are there and know
// how: neither dropout by our draws nor rows that may see nothing.
bool has_fused_attention(const AttentionOptions& how);
at::Tensor attend_fused(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                        const AttentionOptions& how);

}  // namespace melete

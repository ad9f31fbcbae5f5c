// Attention behind one function: a blockwise kernel where there is one, LibTorch's operators elsewhere.
#pragma once

#include <ATen/ATen.h>

#include <optional>

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

// softmax(q k^T * scale + bias) v over the last two dimensions; leading dimensions broadcast.
// q [..., queries, dim], k and v [..., keys, dim]; bias is added to the scores and broadcasts to
// [..., queries, keys]; hidden (bool, same shape) are scores that must not be seen.
at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, double scale,
                  const std::optional<at::Tensor>& bias = {}, const std::optional<at::Tensor>& hidden = {});

}  // namespace melete

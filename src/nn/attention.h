// Attention behind these functions, so that a blockwise kernel can replace it for every model at once.
#pragma once

#include <ATen/ATen.h>

#include <optional>

namespace melete {

class Draws;

// softmax(q k^T * scale + bias) v over the last two dimensions; leading dimensions broadcast.
// q [..., queries, dim], k and v [..., keys, dim]; bias is added to the scores and broadcasts to
// [..., queries, keys]; hidden (bool, same shape) are scores that must not be seen.
at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, double scale,
                  const std::optional<at::Tensor>& bias = {}, const std::optional<at::Tensor>& hidden = {});

// The same for many query heads over one key and one value head.
struct SharedAttention {
  double scale = 1;
  at::Tensor bias;      // [queries, heads, keys] or undefined; -inf hides a key
  at::Tensor hidden;    // bool [batch, keys] or undefined: keys that no query of that row sees
  bool causal = false;  // query i sees keys up to i + keys - queries; a bias must say the same
  double dropout = 0;
  Draws* draws = nullptr;
};
// q [batch, queries, heads, dim], k and v [batch, keys, dim] -> [batch, queries, heads * dim]
at::Tensor attend_shared(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                         const SharedAttention& how);

}  // namespace melete

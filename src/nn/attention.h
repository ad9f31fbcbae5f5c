// Attention behind one function, so that a blockwise kernel can replace it for every model at once.
#pragma once

#include <ATen/ATen.h>

#include <optional>

namespace melete {

// softmax(q k^T * scale + bias) v over the last two dimensions; leading dimensions broadcast.
// q [..., queries, dim], k and v [..., keys, dim]; bias is added to the scores and broadcasts to
// [..., queries, keys]; hidden (bool, same shape) are scores that must not be seen.
at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, double scale,
                  const std::optional<at::Tensor>& bias = {}, const std::optional<at::Tensor>& hidden = {});

}  // namespace melete

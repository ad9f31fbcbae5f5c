// Keys and values of the positions that a layer has read so far, and attention of one more position over
// them: what a transformer's generation needs besides its weights.
#pragma once

#include <ATen/ATen.h>

#include "nn/attention.h"

namespace melete {

struct KeyValueCache {
  // Room for `capacity` positions of every row; options: float32 on the CPU unless given
  KeyValueCache(int64_t rows, int64_t capacity, int64_t kv_heads, int64_t dim,
                const at::TensorOptions& options = at::kFloat);

  // k and v [rows, n, kv_heads, dim] of the positions that follow. Turned already, where positions are
  // rotary.
  void append(const at::Tensor& k, const at::Tensor& v);
  // Only these rows go on, in this order (int64): beams, or what is not finished yet.
  void keep_rows(const at::Tensor& rows);

  at::Tensor read_keys() const { return keys.narrow(1, 0, length); }  // [rows, length, kv_heads, dim]
  at::Tensor read_values() const { return values.narrow(1, 0, length); }

  at::Tensor keys, values;  // [rows, capacity, kv_heads, dim]
  int64_t length = 0;       // in use; less of it forgets the last ones
};

// attend() of one position, q [rows, heads, dim] -> [rows, heads * dim], over all that the cache holds, its
// own key among them. bias [1, heads or 1, length], hidden [rows, length]. Without gradients and in float32
// on the CPU every key is read once, where attend() would lay them all out anew.
at::Tensor attend_one(const at::Tensor& q, const KeyValueCache& cache, const AttentionOptions& how);

}  // namespace melete

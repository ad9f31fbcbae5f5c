// A table over offsets, spread over all pairs of places: the position bias of attention, whose values depend
// on how far a query is from a key. float32 on the CPU; the result is the same on any number of threads.
#pragma once

#include <ATen/ATen.h>

namespace melete {

bool has_offset_gather(const at::Tensor& table);

// table [offsets, heads], places [n] int64 -> [n, heads, n], contiguous: table[places[i] - places[j] +
// middle] for query i and key j. Every such offset must be in the table.
at::Tensor offset_gather_forward(const at::Tensor& table, const at::Tensor& places, int64_t middle);
// gradient [n, heads, n] -> of the table [offsets, heads]
at::Tensor offset_gather_backward(const at::Tensor& gradient, const at::Tensor& places, int64_t middle,
                                  int64_t offsets);

// The same in LibTorch's own operations: other devices and types take it, tests compare against it.
at::Tensor offset_gather_plain(const at::Tensor& table, const at::Tensor& places, int64_t middle);

}  // namespace melete

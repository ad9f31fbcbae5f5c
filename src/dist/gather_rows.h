// Rows of all ranks, with gradients.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>

namespace melete {

class Group;

struct GatheredRows {
  at::Tensor all;         // [rows of all ranks, width], rank by rank
  int64_t first_row = 0;  // where this rank's begin
};

// own [rows, width] float32, whose number of rows may differ between ranks. What comes back to a row is the
// sum of what all ranks make of it: so all ranks must call this, and run backward through it, in the same
// order.
GatheredRows gather_rows(Group& group, const at::Tensor& own);

}  // namespace melete

// Work that is dealt out in a fixed number of shares gives the same bits on any number of threads, if its
// sums are added in a fixed order, too: at::sum over the first dimension adds in one that depends on where
// the parts of its threads begin.
#pragma once

#include <ATen/ATen.h>

namespace melete {

// sums [shares, ...] -> [...]
inline at::Tensor sum_of_shares(const at::Tensor& sums) {
  if (sums.size(0) == 1) return sums[0];
  at::Tensor total = sums[0] + sums[1];
  for (int64_t share = 2; share < sums.size(0); ++share) total.add_(sums[share]);
  return total;
}

}  // namespace melete

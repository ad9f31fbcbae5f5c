// Where one process of several stands, and the only two places where they meet during a step. Alone, there is
// nothing to combine.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

namespace melete {

class Ranks {
 public:
  virtual ~Ranks() = default;
  virtual int64_t rank() const { return 0; }
  virtual int64_t size() const { return 1; }

  // Each tensor becomes its mean over all ranks, in place: gradients, after the last micro-batch of a phase.
  virtual void mean_of_gradients(const std::vector<at::Tensor>& /*parameters*/) {}
  // Likewise for the values that are reported and judged, so that every rank decides alike. float32 [values]
  virtual void mean_of_values(at::Tensor& /*values*/) {}
};

}  // namespace melete

// A GPU for tests on machines without one. A CPU build of LibTorch leaves the CUDA key of its dispatcher
// empty; this fills it, so that everything takes the way that it takes on a real GPU: `device cuda`,
// Module::to, autocast, backward on a device thread. Its tensors live at addresses that no host code can
// read, its operators refuse to mix with CPU tensors, and each one computes on the CPU underneath: results
// are the CPU's to the bit where the same operators run.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>

namespace melete::testing {

// Before anything asks about CUDA, and once for the life of the program. False where LibTorch has a CUDA of
// its own.
bool install_pretend_gpu();

inline at::Device pretend_gpu() {
  return {at::kCUDA, 0};
}

// What went between host and device since the program began.
struct GpuTraffic {
  int64_t copies_in = 0;
  int64_t pinned_in = 0;   // of those: from pinned memory and without waiting
  int64_t waiting_in = 0;  // of those: the host waits until the device has done all it was given
  // Tensors and single numbers that come out, and results whose size depends on values (nonzero,
  // masked_select, indexing by a mask): each is a wait for the device.
  int64_t copies_out = 0;
};
GpuTraffic gpu_traffic();

// For whoever looks for such waits: while it lives, where each comes from goes to stderr.
class ShowWaits {
 public:
  ShowWaits();
  ~ShowWaits();
};

}  // namespace melete::testing

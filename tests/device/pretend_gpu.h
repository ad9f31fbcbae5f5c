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
  int64_t copies_out = 0;  // tensors and single numbers: each is a wait for the device
};
GpuTraffic gpu_traffic();

}  // namespace melete::testing

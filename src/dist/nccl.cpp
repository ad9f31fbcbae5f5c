// NCCL, c10d's transport between GPUs. Compiled where LibTorch was built with it; else no_nccl.cpp is.
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "dist/backend.h"

namespace melete {

ProcessGroupPointer make_nccl_group(const StorePointer& store, const Place& place, const DistConfig& config) {
  if (!at::hasCUDA() || at::getNumGPUs() == 0) return {};
  auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = milliseconds(config.timeout_seconds);
  const int rank = static_cast<int>(place.rank), size = static_cast<int>(place.size);
  return as_group(c10::make_intrusive<c10d::ProcessGroupNCCL>(store, rank, size, options), store,
                  c10::DeviceType::CUDA);
}

}  // namespace melete

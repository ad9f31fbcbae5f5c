// NCCL, c10d's transport between GPUs. Compiled where LibTorch was built with it; else no_nccl.cpp is.
#include <torch/version.h>

#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "dist/backend.h"

namespace melete {

ProcessGroupPointer make_nccl_group(const StorePointer& store, const Place& place, const DistConfig& config) {
  if (!at::hasCUDA() || at::getNumGPUs() == 0) return {};
  auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = milliseconds(config.timeout_seconds);
  const int rank = static_cast<int>(place.rank), size = static_cast<int>(place.size);
  auto nccl = c10::make_intrusive<c10d::ProcessGroupNCCL>(store, rank, size, options);
#if TORCH_VERSION_MAJOR >= 2
  auto group = c10::make_intrusive<c10d::ProcessGroup>(store, rank, size);
  group->setBackend(c10::DeviceType::CUDA, c10d::ProcessGroup::BackendType::NCCL, nccl);
  group->setDefaultBackend(c10d::ProcessGroup::BackendType::NCCL);
  return group;
#else
  return nccl;
#endif
}

}  // namespace melete

// The pieces of c10d behind a Group. Only src/dist includes this: c10d's headers are heavy and differ between
// versions of LibTorch.
#pragma once

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <chrono>
#include <string>

#include "dist/base/environment.h"
#include "dist/dist_config.h"

namespace melete {

using StorePointer = c10::intrusive_ptr<c10d::Store>;
using ProcessGroupPointer = c10::intrusive_ptr<c10d::ProcessGroup>;

inline std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

// Another connection to the store of this group; `serve`: the store itself lives here.
StorePointer connect_store(const Place& place, const DistConfig& config, bool serve);

// For CPU tensors.
ProcessGroupPointer make_gloo_group(const StorePointer& store, const Place& place, const DistConfig& config);
// For GPU tensors; null when this LibTorch has no NCCL or the device is a CPU. nccl.cpp or no_nccl.cpp.
ProcessGroupPointer make_nccl_group(const StorePointer& store, const Place& place, const DistConfig& config);

// What c10d logs about sockets on its own, our errors say in one line.
void quiet_c10d();

// The first line of what LibTorch threw, without its stack trace.
std::string first_line_of(const std::exception& error);

}  // namespace melete

// The pieces of c10d behind a Group. Only src/dist includes this: c10d's headers are heavy and differ between
// versions of LibTorch.
#pragma once

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <chrono>
#include <string>
#include <type_traits>

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

// A transport as the group that c10d's collectives and its Reducer want. In LibTorch 1.13 it is one; in 2 it
// stands behind one, which learns of it in one of two ways.
template <class Transport, class Whole = c10d::ProcessGroup>
c10::intrusive_ptr<Whole> as_group(const c10::intrusive_ptr<Transport>& transport, const StorePointer& store,
                                   c10::DeviceType device) {
  if constexpr (std::is_base_of_v<Whole, Transport>) {
    return transport;
  } else {
    const int rank = transport->getRank(), size = transport->getSize();
    const bool on_cpu = device == c10::DeviceType::CPU;
    const auto type = on_cpu ? Whole::BackendType::GLOO : Whole::BackendType::NCCL;
    c10::intrusive_ptr<Whole> group;
    if constexpr (std::is_constructible_v<Whole, const StorePointer&, int, int>) {
      group = c10::make_intrusive<Whole>(store, rank, size);
      group->setDefaultBackend(type);
    } else {
      const auto options = c10::make_intrusive<typename Whole::Options>(on_cpu ? "gloo" : "nccl");
      group = c10::make_intrusive<Whole>(store, rank, size, options);
    }
    group->setBackend(device, type, transport);
    return group;
  }
}

// For CPU tensors.
ProcessGroupPointer make_gloo_group(const StorePointer& store, const Place& place, const DistConfig& config);
// For GPU tensors; null when this LibTorch has no NCCL or the device is a CPU. nccl.cpp or no_nccl.cpp.
ProcessGroupPointer make_nccl_group(const StorePointer& store, const Place& place, const DistConfig& config);

// What c10d logs about sockets on its own, our errors say in one line.
void quiet_c10d();

// The first line of what LibTorch threw, without its stack trace.
std::string first_line_of(const std::exception& error);

}  // namespace melete

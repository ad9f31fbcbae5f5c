// What a Group holds of c10d; for src/dist alone.
#pragma once

#include "dist/backend.h"
#include "dist/group.h"
#include "dist/monitor.h"

namespace melete {

struct Group::Impl {
  DistConfig config;
  StorePointer store;
  std::unique_ptr<Monitor> monitor;
  ProcessGroupPointer gloo, nccl;
  int64_t turns = 0;  // of the main rank, on_main()
  bool failed = false, finished = false;

  const ProcessGroupPointer& of(const at::Tensor& tensor) const;
};

}  // namespace melete

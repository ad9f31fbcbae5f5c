// Where a model runs, by name, and how tensors get there.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

namespace melete {

inline constexpr const char* kDeviceHelp = "cpu, cuda, cuda:N, or auto: cuda where there is one, else cpu";

// "cuda" and "auto" are the GPU of this rank among the processes of the machine. An Error where it is not
// there.
c10::Device device_named(const std::string& name, int64_t local_rank = 0);

// To a GPU through pinned memory and without waiting for it; what is there already stays as it is. Plain
// Tensor::to waits until the GPU has done all that it was given.
at::Tensor sent_to(c10::Device device, const at::Tensor& tensor);

}  // namespace melete

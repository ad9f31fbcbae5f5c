// Where a model runs, by name.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <string>

namespace melete {

inline constexpr const char* kDeviceHelp = "cpu, cuda, cuda:N, or auto: cuda where there is one, else cpu";

// "cuda" and "auto" are the GPU of this rank among the processes of the machine. An Error where it is not
// there.
c10::Device device_named(const std::string& name, int64_t local_rank = 0);

}  // namespace melete

#include "core/device.h"

#include <ATen/ATen.h>
#include <torch/cuda.h>

#include <charconv>

#include "core/base/error.h"

namespace melete {

c10::Device device_named(const std::string& name, int64_t local_rank) {
  if (name == "cpu") return c10::kCPU;
  const bool any = name == "auto" || name == "cuda";
  int64_t index = local_rank;
  if (!any) {
    constexpr std::string_view start = "cuda:";
    const char* const end = name.data() + name.size();
    const bool named = name.rfind(start, 0) == 0;
    const auto read =
        named ? std::from_chars(name.data() + start.size(), end, index) : std::from_chars_result{};
    require(named && read.ec == std::errc() && read.ptr == end && index >= 0 && index < 128,
            "[device] expected cpu, cuda, cuda:N or auto, got {}", name);
  }
  const auto count = static_cast<int64_t>(torch::cuda::device_count());
  if (count == 0 && name == "auto") return c10::kCPU;
  require(count > 0, "[device] {} is not there: this LibTorch sees no GPU; try device cpu", name);
  require(any || index < count, "[device] no GPU {}: this machine has {}, counted from 0", index, count);
  require(index < count,
          "[device] process {} of this machine has no GPU of its own, there are {}; try fewer --procs, or "
          "device cpu",
          index + 1, count);
  return {c10::kCUDA, static_cast<c10::DeviceIndex>(index)};
}

at::Tensor sent_to(c10::Device device, const at::Tensor& tensor) {
  if (!device.is_cuda() || !tensor.device().is_cpu()) return tensor.to(device);
  // Expanded tensors have no memory of their own that could be pinned. What is pinned is kept until the copy
  // is done: LibTorch's allocator of such memory sees to that.
  const at::Tensor dense = tensor.is_non_overlapping_and_dense() ? tensor : tensor.contiguous();
  return dense.pin_memory().to(device, /*non_blocking=*/true);
}

}  // namespace melete

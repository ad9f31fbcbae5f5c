// Memory of the pretend GPU, and its tensors as CPU tensors for the time of one operator.
#pragma once

#include <ATen/ATen.h>
#include <c10/core/CPUAllocator.h>
#include <torch/version.h>

#include <vector>

namespace melete::testing {

// An address of the host with one bit flipped: not a valid address on x86-64 or aarch64, so that every access
// from host code faults; and back.
void* flip(const void* address);
constexpr uintptr_t kFlippedBit = uintptr_t{1} << 52;

inline bool on_gpu(const at::Tensor& t) {
  return t.defined() && t.device().is_cuda();
}

class GpuAllocator final : public c10::Allocator {
 public:
#if TORCH_VERSION_MAJOR >= 2
  c10::DataPtr allocate(size_t bytes) override {
    return made(bytes);
  }
  void copy_data(void* to, const void* from, size_t bytes) const override;
#else
  c10::DataPtr allocate(size_t bytes) const override {
    return made(bytes);
  }
#endif
 private:
  static c10::DataPtr made(size_t bytes);
};
GpuAllocator& gpu_allocator();

// Memory of the host that the GPU reads by itself.
c10::Allocator& pinned_allocator();
bool is_pinned_memory(const void* address);

// One storage of the CPU for each storage of the GPU and back: views stay views, in-place stays in-place.
class Exchange {
 public:
  at::Tensor to_host(const at::Tensor& t);
  at::Tensor to_gpu(const at::Tensor& t);
  // A CPU tensor among the arguments stays one, should it be the result.
  void keep(const at::Tensor& t) { kept_.push_back(t); }
  // In-place and out= operators may have resized what they were given.
  void adopt_resized();

 private:
  struct Storages {
    c10::Storage gpu, host;
    const void* began;  // where the host's was before the operator
  };
  struct Tensors {
    at::Tensor gpu, host;
  };
  c10::Storage host_storage(const c10::Storage& gpu);
  c10::Storage gpu_storage(const c10::Storage& host);

  std::vector<Storages> storages_;
  std::vector<Tensors> tensors_;
  std::vector<at::Tensor> kept_;
};

}  // namespace melete::testing

#include "device/gpu_memory.h"

#include <cstring>
#include <mutex>
#include <set>

#include "device/pretend_gpu.h"

namespace melete::testing {

namespace {

// Memory that is another's under a second address: the owner lives as long as it does.
template <class Owner>
c10::DataPtr borrowed(void* address, Owner owner, at::Device device) {
  return {address, new Owner(std::move(owner)), [](void* p) { delete static_cast<Owner*>(p); }, device};
}

c10::Storage storage_of(c10::DataPtr data, size_t bytes, c10::Allocator* allocator) {
  return c10::Storage(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes,
                                                            std::move(data), allocator, true));
}

void* address_of(const c10::Storage& storage) {
  return const_cast<void*>(static_cast<const void*>(storage.data_ptr().get()));
}

at::Tensor view_of(c10::Storage storage, c10::DispatchKey key, const c10::TensorImpl& like) {
  c10::DispatchKeySet keys(key);
  for (const auto bit : {c10::DispatchKey::Conjugate, c10::DispatchKey::Negative})
    if (like.key_set().has(bit)) keys = keys.add(bit);
  at::Tensor made = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), keys, like.dtype());
  auto* impl = made.unsafeGetTensorImpl();
  impl->set_storage_offset(like.storage_offset());
  impl->set_sizes_and_strides(like.sizes(), like.strides());
  if (like.is_wrapped_number()) impl->set_wrapped_number(true);
  return made;
}

}  // namespace

void* flip(const void* address) {
  return address ? reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(address) ^ kFlippedBit) : nullptr;
}

c10::DataPtr GpuAllocator::made(size_t bytes) {
  c10::DataPtr host = c10::GetCPUAllocator()->allocate(bytes);
  void* const address = flip(host.get());
  return borrowed(address, std::move(host), pretend_gpu());
}

#if TORCH_VERSION_MAJOR >= 2
void GpuAllocator::copy_data(void* to, const void* from, size_t bytes) const {
  std::memcpy(flip(to), flip(from), bytes);
}
#endif

GpuAllocator& gpu_allocator() {
  static GpuAllocator one;
  return one;
}

namespace {

std::mutex pinned_lock;
std::set<const void*>& pinned() {
  static auto* const all = new std::set<const void*>;
  return *all;
}

class PinnedAllocator final : public c10::Allocator {
 public:
#if TORCH_VERSION_MAJOR >= 2
  c10::DataPtr allocate(size_t bytes) override {
    return made(bytes);
  }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }
#else
  c10::DataPtr allocate(size_t bytes) const override {
    return made(bytes);
  }
#endif
 private:
  static c10::DataPtr made(size_t bytes) {
    void* const address = std::malloc(bytes > 0 ? bytes : 1);
    const std::lock_guard lock(pinned_lock);
    pinned().insert(address);
    return {address, address,
            [](void* p) {
              const std::lock_guard inner(pinned_lock);
              pinned().erase(p);
              std::free(p);
            },
            at::kCPU};
  }
};

}  // namespace

c10::Allocator& pinned_allocator() {
  static PinnedAllocator one;
  return one;
}

bool is_pinned_memory(const void* address) {
  const std::lock_guard lock(pinned_lock);
  return pinned().count(address) > 0;
}

at::Tensor Exchange::to_host(const at::Tensor& t) {
  for (const auto& pair : tensors_)
    if (pair.gpu.is_same(t)) return pair.host;
  const at::Tensor alias =
      view_of(host_storage(t.storage()), c10::DispatchKey::CPU, *t.unsafeGetTensorImpl());
  tensors_.push_back({t, alias});
  return alias;
}

at::Tensor Exchange::to_gpu(const at::Tensor& t) {
  if (!t.defined() || !t.device().is_cpu()) return t;
  for (const auto& other : kept_)
    if (other.is_same(t)) return t;
  for (const auto& pair : tensors_)
    if (pair.host.is_same(t)) return pair.gpu;
  return view_of(gpu_storage(t.storage()), c10::DispatchKey::CUDA, *t.unsafeGetTensorImpl());
}

void Exchange::adopt_resized() {
  for (auto& pair : storages_) {
    if (address_of(pair.host) == pair.began) continue;
    auto* const host = pair.host.unsafeGetStorageImpl();
    auto* const gpu = pair.gpu.unsafeGetStorageImpl();
    const size_t bytes = host->nbytes();
    void* const address = flip(address_of(pair.host));
    gpu->set_data_ptr_noswap(borrowed(address, host->set_data_ptr(c10::DataPtr()), pretend_gpu()));
    gpu->set_nbytes(bytes);
  }
  for (auto& [gpu, host] : tensors_) {
    auto* const impl = gpu.unsafeGetTensorImpl();
    if (gpu.sizes() != host.sizes() || gpu.strides() != host.strides())
      impl->set_sizes_and_strides(host.sizes(), host.strides());
    if (gpu.storage_offset() != host.storage_offset()) impl->set_storage_offset(host.storage_offset());
  }
}

c10::Storage Exchange::host_storage(const c10::Storage& gpu) {
  for (const auto& pair : storages_)
    if (pair.gpu.unsafeGetStorageImpl() == gpu.unsafeGetStorageImpl()) return pair.host;
  void* const address = flip(address_of(gpu));
  c10::Storage host =
      storage_of(borrowed(address, c10::Storage(gpu), at::kCPU), gpu.nbytes(), c10::GetCPUAllocator());
  storages_.push_back({gpu, host, address});
  return host;
}

c10::Storage Exchange::gpu_storage(const c10::Storage& host) {
  for (const auto& pair : storages_)
    if (pair.host.unsafeGetStorageImpl() == host.unsafeGetStorageImpl()) return pair.gpu;
  void* const address = address_of(host);
  c10::Storage gpu =
      storage_of(borrowed(flip(address), c10::Storage(host), pretend_gpu()), host.nbytes(), &gpu_allocator());
  storages_.push_back({gpu, host, address});
  return gpu;
}

}  // namespace melete::testing

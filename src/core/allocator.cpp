#include "core/allocator.h"

#include <c10/core/CPUAllocator.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "core/base/error.h"

namespace melete {

namespace {

constexpr size_t kHeader = 64;       // holds the block's size; also keeps LibTorch's 64-byte alignment
constexpr size_t kSmall = 64 << 10;  // below this the C library is as good
constexpr size_t kHugePage = size_t{2} << 20;
constexpr int64_t kAlwaysCached = int64_t{64} << 20;

// One pool for the process. It is never destroyed: tensors in static variables outlive everything.
struct Pool {
  std::mutex mutex;
  std::multimap<size_t, void*> free_blocks;  // by size
  TensorMemory memory;
  int64_t most_live_bytes = 0;  // at once, since the cache was last emptied by hand

  // Blocks come in steps of an eighth of a power of two, so that nearly equal tensors share them.
  static size_t rounded(size_t bytes) {
    if (bytes < kSmall) return bytes;
    size_t power = kSmall;
    while (power * 2 <= bytes) power *= 2;
    const size_t step = power / 8;
    return (bytes + step - 1) / step * step;
  }

  static void* fresh(size_t bytes) {
    const size_t total = bytes + kHeader;
    const bool huge = total >= kHugePage;
    const size_t reserved = huge ? (total + kHugePage - 1) / kHugePage * kHugePage : total;
    void* base = nullptr;
    if (posix_memalign(&base, huge ? kHugePage : kHeader, reserved) != 0) return nullptr;
    if (huge) madvise(base, reserved, MADV_HUGEPAGE);
    return base;
  }

  void count(size_t bytes) {
    memory.live_bytes += static_cast<int64_t>(bytes);
    memory.peak_bytes = std::max(memory.peak_bytes, memory.live_bytes);
    most_live_bytes = std::max(most_live_bytes, memory.live_bytes);
  }

  void release_until(int64_t limit) {
    // Largest first: few calls, and the small ones are what the next step asks for again.
    while (memory.cached_bytes > limit && !free_blocks.empty()) {
      const auto last = std::prev(free_blocks.end());
      memory.cached_bytes -= static_cast<int64_t>(last->first);
      std::free(last->second);
      free_blocks.erase(last);
    }
  }

  void* take(size_t requested) {
    const size_t bytes = rounded(requested);
    std::unique_lock lock(mutex);
    void* base = nullptr;
    size_t block = bytes;
    if (bytes >= kSmall) {
      const auto found = free_blocks.lower_bound(bytes);
      if (found != free_blocks.end() && found->first <= bytes + bytes / 4) {
        block = found->first;
        base = found->second;
        memory.cached_bytes -= static_cast<int64_t>(block);
        free_blocks.erase(found);
      } else {
        // Items of ever new lengths would fill memory with blocks that fit nothing: keep a quarter of what
        // lives, or what lived at the most and will again. (A step starts with little alive and all of the
        // last one's blocks free; giving those back would have the system clear gigabytes in every step.)
        release_until(kAlwaysCached + std::max(memory.live_bytes / 4, most_live_bytes - memory.live_bytes));
      }
    }
    count(block);
    if (!base) {
      lock.unlock();
      base = fresh(block);
      if (!base) {
        lock.lock();
        release_until(0);
        base = fresh(block);
        if (!base) {
          memory.live_bytes -= static_cast<int64_t>(block);
          fail(
              "[memory] expected {} MB for a tensor, got none from the system; try a smaller batch or "
              "segment",
              block >> 20);
        }
      }
      std::memcpy(base, &block, sizeof block);
    }
    return static_cast<char*>(base) + kHeader;
  }

  void give(void* data) {
    void* base = static_cast<char*>(data) - kHeader;
    size_t block;
    std::memcpy(&block, base, sizeof block);
    {
      const std::lock_guard lock(mutex);
      memory.live_bytes -= static_cast<int64_t>(block);
      if (block >= kSmall) {
        memory.cached_bytes += static_cast<int64_t>(block);
        free_blocks.emplace(block, base);
        return;
      }
    }
    std::free(base);
  }
};

Pool& pool() {
  static Pool* const one = new Pool;
  return *one;
}

void give_back(void* data) {
  if (data) pool().give(data);
}

class CachingAllocator final : public c10::Allocator {
 public:
  // LibTorch 1.13 declares allocate() const, later versions do not; later ones also ask for copy_data().
  c10::DataPtr allocate(size_t bytes) const { return make(bytes); }
  c10::DataPtr allocate(size_t bytes) { return make(bytes); }
  void copy_data(void* to, const void* from, std::size_t count) const { std::memcpy(to, from, count); }
  c10::DeleterFnPtr raw_deleter() const override { return &give_back; }

 private:
  static c10::DataPtr make(size_t bytes) {
    void* data = bytes == 0 ? nullptr : pool().take(bytes);
    return {data, data, &give_back, c10::Device(c10::DeviceType::CPU)};
  }
};

bool installed = false;

}  // namespace

void install_allocator() {
#if !defined(__SANITIZE_ADDRESS__)
  const char* choice = std::getenv("MELETE_ALLOCATOR");
  if (installed || (choice && std::strcmp(choice, "system") == 0)) return;
  static CachingAllocator* const allocator = new CachingAllocator;
  c10::SetCPUAllocator(allocator, /*priority=*/1);
  installed = true;
#endif
}

bool allocator_installed() {
  return installed;
}

TensorMemory tensor_memory() {
  const std::lock_guard lock(pool().mutex);
  return pool().memory;
}

void reset_tensor_memory_peak() {
  const std::lock_guard lock(pool().mutex);
  pool().memory.peak_bytes = pool().memory.live_bytes;
}

void release_cached_memory() {
  const std::lock_guard lock(pool().mutex);
  pool().release_until(0);
  pool().most_live_bytes = pool().memory.live_bytes;
}

}  // namespace melete

#include "io/npy.h"

#include <fmt/ranges.h>

#include "core/base/error.h"
#include "io/base/atomic_file.h"

namespace melete {

namespace {

// Magic, version 1.0, and the length of what follows in two bytes.
constexpr size_t kBeforeHeader = 10, kAlignment = 64;

}  // namespace

void write_npy(const std::string& path, const at::Tensor& tensor) {
  const at::Tensor plain = tensor.to(at::kCPU).contiguous();
  const bool real = plain.scalar_type() == at::kFloat;
  require(real || plain.scalar_type() == at::kLong, "[write {}] expected float32 or int64, got {}", path,
          c10::toString(plain.scalar_type()));
  std::string shape;
  for (const int64_t size : plain.sizes()) shape += fmt::format("{}, ", size);
  std::string header =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", real ? "<f4" : "<i8", shape);
  header.resize((kBeforeHeader + header.size() + kAlignment) / kAlignment * kAlignment - kBeforeHeader, ' ');
  header.back() = '\n';
  AtomicFile file(path);
  file.write(std::string_view("\x93NUMPY\x01\x00", 8));
  const char length[2] = {static_cast<char>(header.size() & 255), static_cast<char>(header.size() >> 8)};
  file.write(std::string_view(length, 2));
  file.write(header);
  file.write(std::span(static_cast<const std::byte*>(plain.data_ptr()), plain.nbytes()));
  file.commit();
}

}  // namespace melete

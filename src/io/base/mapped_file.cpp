#include "io/base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/base/error.h"

namespace melete {

MappedFile::MappedFile(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  require(descriptor >= 0, "[{}] cannot be opened: {}", path, std::strerror(errno));
  struct stat status;
  const bool regular = ::fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
  const size_t size = regular ? static_cast<size_t>(status.st_size) : 0;
  void* address = MAP_FAILED;
  if (size > 0)
    address = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, descriptor, 0);
  const int reason = errno;
  ::close(descriptor);
  require(regular, "[{}] expected a regular file, got a folder or a device", path);
  require(size > 0, "[{}] truncated: the file is empty", path);
  require(address != MAP_FAILED, "[{}] cannot be mapped into memory: {}", path, std::strerror(reason));
  owner = std::shared_ptr<void>(address, [size](void* at) { ::munmap(at, size); });
  bytes = {static_cast<const std::byte*>(address), size};
}

std::string printable(std::string_view text, size_t limit) {
  std::string result;
  for (const char c : text.substr(0, limit)) result += (c >= ' ' && c != '\x7f') ? c : '?';
  if (text.size() > limit) result += "...";
  return result;
}

}  // namespace melete

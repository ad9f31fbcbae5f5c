// A regular file as read-only bytes. The mapping is private and writable, so that a tensor over it can be
// changed in place without changing the file.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace melete {

struct MappedFile {
  explicit MappedFile(const std::string& path);  // throws an Error that names the file and the reason

  std::span<const std::byte> bytes;
  std::shared_ptr<void> owner;  // the bytes stay valid as long as this lives
};

// Text of a file that may be hostile, for a one-line message: short, and printable.
std::string printable(std::string_view text, size_t limit = 80);

}  // namespace melete

// The safetensors format: an 8-byte length, a JSON header, then tensor bytes without holes. Reading trusts
// nothing: every number in the header is checked against the file before a byte is looked at.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace melete {

enum class DType { f64, f32, f16, bf16, i64, i32, i16, i8, u8, boolean };

size_t byte_size(DType dtype);
std::string_view dtype_name(DType dtype);  // as in the file: "F32", "BF16", "BOOL"

struct TensorBytes {
  std::string name;
  DType dtype = DType::f32;
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;  // little-endian, contiguous
};

using TextMap = std::map<std::string, std::string>;

class SafetensorsFile {
 public:
  explicit SafetensorsFile(
      const std::string& path);  // throws an Error that names the file and what is wrong with it

  const std::vector<TensorBytes>& tensors() const { return tensors_; }  // in the order of their bytes
  const TensorBytes* find(std::string_view name) const;                 // nullptr when there is none
  const TextMap& metadata() const { return metadata_; }
  // Keeps the mapping alive: the bytes stay valid as long as this or the file object does. The mapping is
  // private and writable, so a tensor over it can be changed in place without changing the file.
  std::shared_ptr<void> mapping() const { return mapping_; }

 private:
  std::shared_ptr<void> mapping_;
  std::vector<TensorBytes> tensors_;
  TextMap metadata_;
  std::map<std::string, size_t, std::less<>> index_;
};

// The same checks on bytes in memory, for tests and for files that come from elsewhere. `where` goes into
// messages.
void parse_safetensors(std::span<const std::byte> file, const std::string& where,
                       std::vector<TensorBytes>& tensors, TextMap& metadata);

// Through AtomicFile. Wide types come first, so that every tensor is aligned in a mapping; bytes are
// streamed.
void write_safetensors(const std::string& path, std::vector<TensorBytes> tensors,
                       const TextMap& metadata = {});

}  // namespace melete

// Checksums: XXH3 for checkpoints, CRC-32C for TensorBoard's records.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace melete {

// XXH3, 128 bits, fed piece by piece.
class Checksum {
 public:
  Checksum();
  ~Checksum();
  void add(std::span<const std::byte> bytes);
  void add(std::string_view text);  // with its length, so that "ab" + "c" differs from "a" + "bc"
  void add(int64_t number);
  std::string hex() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

uint32_t crc32c(std::span<const std::byte> bytes);  // Castagnoli
uint32_t crc32c(std::string_view bytes);

}  // namespace melete

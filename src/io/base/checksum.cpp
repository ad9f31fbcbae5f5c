#include "io/base/checksum.h"

#include <xxhash.h>

#include <array>

#include "core/base/error.h"

namespace melete {

struct Checksum::State {
  XXH3_state_t* xxh = XXH3_createState();
  ~State() { XXH3_freeState(xxh); }
};

Checksum::Checksum() : state_(std::make_unique<State>()) {
  require(state_->xxh && XXH3_128bits_reset(state_->xxh) == XXH_OK, "[checksum] out of memory");
}

Checksum::~Checksum() = default;

void Checksum::add(std::span<const std::byte> bytes) {
  XXH3_128bits_update(state_->xxh, bytes.data(), bytes.size());
}

void Checksum::add(std::string_view text) {
  add(static_cast<int64_t>(text.size()));
  add(std::as_bytes(std::span(text)));
}

void Checksum::add(int64_t number) {
  std::array<std::byte, 8> bytes;
  for (size_t i = 0; i < 8; ++i) bytes[i] = static_cast<std::byte>(static_cast<uint64_t>(number) >> (8 * i));
  add(std::span<const std::byte>(bytes));
}

std::string Checksum::hex() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(state_->xxh);
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

uint32_t crc32c(std::span<const std::byte> bytes) {
  static const std::array<uint32_t, 256> table = [] {
    std::array<uint32_t, 256> made{};
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t value = i;
      for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) ? 0x82f63b78u : 0u);
      made[i] = value;
    }
    return made;
  }();
  uint32_t crc = 0xffffffffu;
  for (const std::byte b : bytes) crc = (crc >> 8) ^ table[(crc ^ static_cast<uint32_t>(b)) & 0xffu];
  return crc ^ 0xffffffffu;
}

uint32_t crc32c(std::string_view bytes) {
  return crc32c(std::as_bytes(std::span(bytes)));
}

}  // namespace melete

// Zip archives whose members are stored, not compressed, as torch.save writes them (zip64 included). Reading
// gives views of the archive's bytes; every number in its tables is checked against the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/base/atomic_file.h"

namespace melete {

class ZipArchive {
 public:
  // `where` goes into messages. The bytes must outlive the archive.
  ZipArchive(std::span<const std::byte> file, std::string where);

  struct Member {
    std::span<const std::byte> bytes;
    uint32_t crc32 = 0;
  };
  const std::map<std::string, Member, std::less<>>& members() const { return members_; }
  const Member* find(std::string_view name) const;
  // The member's bytes, after comparing their checksum. Missing or damaged is an Error.
  std::span<const std::byte> checked(std::string_view name) const;

 private:
  std::string where_;
  std::map<std::string, Member, std::less<>> members_;
};

bool looks_like_zip(std::span<const std::byte> file);

// Writes one: members one after the other, each beginning at a multiple of 64 bytes as LibTorch wants them.
class ZipWriter {
 public:
  explicit ZipWriter(AtomicFile& file) : file_(file) {}
  void add(const std::string& name, std::span<const std::byte> bytes);
  void add(const std::string& name, std::string_view text);
  void finish();  // the central directory; the caller commits the file

 private:
  struct Entry {
    std::string name;
    uint64_t offset, size;
    uint32_t crc32;
  };
  void put(std::string_view bytes);

  AtomicFile& file_;
  std::vector<Entry> entries_;
  uint64_t position_ = 0;
};

uint32_t crc32(std::span<const std::byte> bytes);  // the polynomial of zip and PNG

}  // namespace melete

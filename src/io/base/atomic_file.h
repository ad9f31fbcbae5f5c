// A file that appears whole or not at all: bytes go to a temporary in the same folder, and only commit()
// gives it its name. Whatever was there before stays until then, whatever fails.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace melete {

class AtomicFile {
 public:
  explicit AtomicFile(const std::string& path);  // throws when the folder is missing or cannot be written
  ~AtomicFile();                                 // without commit() the temporary is removed
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // A failed write (full disk, broken disk) throws an Error naming path and reason, and removes the
  // temporary.
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  void commit();  // flush, fsync, rename, fsync of the folder

  const std::string& path() const { return path_; }
  // A library that writes by file name may write here instead of through write(); commit() does the rest.
  const std::string& temporary_path() const { return temporary_; }

  // Tests only: every file's write fails with `error_number` once that many bytes are in it; negative: never.
  // The environment variable MELETE_FAIL_AFTER_BYTES does the same (with ENOSPC) to a whole program.
  static void fail_after_bytes(int64_t bytes, int error_number = 28 /* ENOSPC */);

 private:
  void flush();
  void write_through(const std::byte* data, size_t size);
  void abandon();

  std::string path_, temporary_;
  int descriptor_ = -1;
  int64_t written_ = 0;
  std::vector<std::byte> buffer_;
};

// Writes a whole small file (configuration, a table) in one call.
void write_file_atomically(const std::string& path, std::string_view text);

// Temporaries that a killed process left in `folder` (not below it) are removed; returns their names. The
// caller must know that no other process is writing there.
std::vector<std::string> remove_stale_temporaries(const std::string& folder);

}  // namespace melete

// Files of codec tokens (docs/codec.md has the layout byte by byte). A file says which model made it, and
// whoever reads it compares; every number is checked against the file's size before a byte is unpacked.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/base/atomic_file.h"
#include "io/base/checksum.h"

namespace melete {

struct TokenHeader {
  std::string model;       // identity: 32 hexadecimal digits
  std::string model_name;  // for people, at most 63 bytes: "codec step 12000"
  int64_t rate_hz = 0;     // of the codec
  int64_t samples_per_frame = 0;
  int64_t quantizers = 0;  // codes of a frame: groups x stages, group by group
  int64_t groups = 1;
  int64_t codebook_size = 0;
  int64_t source_rate_hz = 0;  // of the recording; for people

  int bits_per_code() const;
};

// The 128 bytes in front of a file's or a stream's codes, which differ in the magic word.
constexpr size_t kTokenHeaderBytes = 128;
std::string token_header_bytes(const TokenHeader& header, std::string_view magic, const std::string& where);
TokenHeader token_header_of(std::span<const std::byte> bytes, std::string_view magic,
                            const std::string& where);

class TokenWriter {
 public:
  TokenWriter(const std::string& path, const TokenHeader& header);
  void add(std::span<const int64_t> codes);  // whole frames: [frames, quantizers]
  void commit(int64_t samples);              // how many samples of the recording the frames cover
  int64_t frames() const { return frames_; }

 private:
  void put(std::span<const std::byte> bytes);

  TokenHeader header_;
  AtomicFile file_;
  Checksum checksum_;
  int64_t frames_ = 0;
  uint64_t pending_ = 0;  // bits that do not fill a byte yet
  int pending_bits_ = 0;
  std::vector<std::byte> packed_;
};

class TokenFile {
 public:
  explicit TokenFile(const std::string& path);
  TokenFile(std::span<const std::byte> file, const std::string& where);  // the bytes must outlive it

  const TokenHeader& header() const { return header_; }
  int64_t frames() const { return frames_; }
  int64_t samples() const { return samples_; }
  double seconds() const { return static_cast<double>(samples_) / static_cast<double>(header_.rate_hz); }

  // Codes of some frames: [count, quantizers].
  std::vector<int64_t> codes(int64_t begin_frame, int64_t count) const;

 private:
  void parse(std::span<const std::byte> file);

  std::string where_;
  std::shared_ptr<void> mapping_;
  TokenHeader header_;
  int64_t frames_ = 0, samples_ = 0;
  std::span<const std::byte> payload_;
};

}  // namespace melete

// Tokens of a sound that is still going on (docs/codec.md has the layout): a token file's header, then every
// frame's codes in whole bytes, as they become known, until the end of the stream.
#pragma once

#include <cstdint>
#include <istream>
#include <ostream>
#include <span>
#include <vector>

#include "io/base/token_file.h"

namespace melete {

class TokenStreamWriter {
 public:
  TokenStreamWriter(std::ostream& out, const TokenHeader& header);  // the header goes out at once
  void add(std::span<const int64_t> codes);  // whole frames, [frames, quantizers]; flushed

 private:
  std::ostream& out_;
  TokenHeader header_;
};

class TokenStreamReader {
 public:
  explicit TokenStreamReader(std::istream& in);  // waits for the header
  const TokenHeader& header() const { return header_; }
  // Waits for the next frame: its codes, or nothing at the end of the stream.
  std::vector<int64_t> next();

 private:
  std::istream& in_;
  TokenHeader header_;
};

}  // namespace melete

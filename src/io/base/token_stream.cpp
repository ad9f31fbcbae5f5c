#include "io/base/token_stream.h"

#include "core/base/error.h"

namespace melete {

namespace {

constexpr std::string_view kStreamMagic = "MELTOKST";
constexpr const char* kWhere = "token stream";

size_t frame_bytes(const TokenHeader& header) {
  return (static_cast<size_t>(header.quantizers) * static_cast<size_t>(header.bits_per_code()) + 7) / 8;
}

}  // namespace

TokenStreamWriter::TokenStreamWriter(std::ostream& out, const TokenHeader& header)
    : out_(out), header_(header) {
  const std::string bytes = token_header_bytes(header, kStreamMagic, kWhere);
  out_.write(bytes.data(), static_cast<std::streamsize>(bytes.size())).flush();
  require(out_.good(), "[{}] cannot write: the reader has gone", kWhere);
}

void TokenStreamWriter::add(std::span<const int64_t> codes) {
  const auto a_frame = static_cast<size_t>(header_.quantizers);
  require(codes.size() % a_frame == 0, "[{}] expected whole frames of {} codes, got {} codes", kWhere,
          a_frame, codes.size());
  const int bits = header_.bits_per_code();
  std::string bytes;
  for (size_t begin = 0; begin < codes.size(); begin += a_frame) {
    uint64_t pending = 0;
    int pending_bits = 0;
    for (const int64_t code : codes.subspan(begin, a_frame)) {
      require(code >= 0 && code < header_.codebook_size, "[{}] a code of {} in a codebook of {}", kWhere,
              code, header_.codebook_size);
      pending |= static_cast<uint64_t>(code) << pending_bits;
      for (pending_bits += bits; pending_bits >= 8; pending_bits -= 8, pending >>= 8)
        bytes += static_cast<char>(pending & 0xff);
    }
    if (pending_bits > 0) bytes += static_cast<char>(pending);
  }
  out_.write(bytes.data(), static_cast<std::streamsize>(bytes.size())).flush();
  require(out_.good(), "[{}] cannot write: the reader has gone", kWhere);
}

TokenStreamReader::TokenStreamReader(std::istream& in) : in_(in) {
  std::string bytes(kTokenHeaderBytes, '\0');
  in_.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  bytes.resize(static_cast<size_t>(in_.gcount()));
  header_ = token_header_of(std::as_bytes(std::span(bytes)), kStreamMagic, kWhere);
}

std::vector<int64_t> TokenStreamReader::next() {
  std::string bytes(frame_bytes(header_), '\0');
  in_.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (in_.gcount() == 0) return {};
  require(in_.gcount() == static_cast<std::streamsize>(bytes.size()),
          "[{}] it ends within a frame: {} of {} bytes", kWhere, in_.gcount(), bytes.size());
  const int bits = header_.bits_per_code();
  std::vector<int64_t> codes;
  uint64_t window = 0;
  int held = 0;
  for (const char byte : bytes) {
    window |= static_cast<uint64_t>(static_cast<unsigned char>(byte)) << held;
    held += 8;
    for (; held >= bits && codes.size() < static_cast<size_t>(header_.quantizers);
         held -= bits, window >>= bits) {
      const auto code = static_cast<int64_t>(window & ((uint64_t{1} << bits) - 1));
      require(code < header_.codebook_size, "[{}] damaged: a code of {} in a codebook of {}", kWhere, code,
              header_.codebook_size);
      codes.push_back(code);
    }
  }
  return codes;
}

}  // namespace melete

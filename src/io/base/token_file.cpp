#include "io/base/token_file.h"

#include <bit>
#include <cstring>

#include "core/base/error.h"
#include "io/base/mapped_file.h"

namespace melete {

namespace {

constexpr std::string_view kMagic = "MELTOKEN";
constexpr uint32_t kVersion = 1;
constexpr size_t kHeaderBytes = kTokenHeaderBytes, kFooterBytes = 32, kNameBytes = 64;
// More than any codec has; keeps products of hostile headers far from 64 bits.
constexpr uint32_t kMostQuantizers = 4096;
constexpr uint32_t kLargestCodebook = 1u << 24;
constexpr uint32_t kMostRateHz = 10'000'000;
constexpr uint32_t kLongestFrame = 1u << 20;

template <class T>
void append(std::string& text, T value) {
  text.append(reinterpret_cast<const char*>(&value), sizeof(T));
}

template <class T>
T number(std::span<const std::byte> bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(T));
  return value;
}

std::string to_hex(std::span<const std::byte> bytes) {
  std::string result;
  for (const std::byte b : bytes) result += fmt::format("{:02x}", static_cast<unsigned>(b));
  return result;
}

std::string from_hex(const std::string& text, const std::string& where) {
  std::string result;
  require(text.size() == 32 && text.find_first_not_of("0123456789abcdef") == std::string::npos,
          "[{}] expected a model identity of 32 hexadecimal digits, got '{}'", where, printable(text));
  for (size_t i = 0; i < text.size(); i += 2)
    result += static_cast<char>(std::stoi(text.substr(i, 2), nullptr, 16));
  return result;
}

void check(const TokenHeader& header, const std::string& where) {
  const auto within = [&](int64_t value, int64_t least, int64_t most, const char* what) {
    require(value >= least && value <= most,
            "[{}] absurd header: {} should be from {} to {}, it says {}; the file is damaged", where, what,
            least, most, value);
  };
  within(header.rate_hz, 1, kMostRateHz, "the sample rate");
  within(header.samples_per_frame, 1, kLongestFrame, "samples of a frame");
  within(header.quantizers, 1, kMostQuantizers, "codes of a frame");
  within(header.groups, 1, header.quantizers, "groups");
  within(header.codebook_size, 2, kLargestCodebook, "the codebook's size");
  require(header.quantizers % header.groups == 0,
          "[{}] absurd header: {} codes do not split into {} groups; the file is damaged", where,
          header.quantizers, header.groups);
}

}  // namespace

int TokenHeader::bits_per_code() const {
  return std::bit_width(static_cast<uint64_t>(codebook_size - 1));
}

std::string token_header_bytes(const TokenHeader& header, std::string_view magic, const std::string& where) {
  check(header, where);
  std::string text(magic);
  append<uint32_t>(text, kVersion);
  append<uint32_t>(text, kHeaderBytes);
  text += from_hex(header.model, where);
  append<uint32_t>(text, static_cast<uint32_t>(header.rate_hz));
  append<uint32_t>(text, static_cast<uint32_t>(header.samples_per_frame));
  append<uint32_t>(text, static_cast<uint32_t>(header.quantizers));
  append<uint32_t>(text, static_cast<uint32_t>(header.groups));
  append<uint32_t>(text, static_cast<uint32_t>(header.codebook_size));
  append<uint32_t>(text, static_cast<uint32_t>(header.bits_per_code()));
  append<uint32_t>(text, static_cast<uint32_t>(header.source_rate_hz));
  append<uint32_t>(text, 0);
  std::string name = header.model_name.substr(0, kNameBytes - 1);
  name.resize(kNameBytes, '\0');
  text += name;
  require(text.size() == kHeaderBytes, "[{}] a header of {} bytes", where, text.size());
  return text;
}

TokenHeader token_header_of(std::span<const std::byte> bytes, std::string_view magic,
                            const std::string& where) {
  require(bytes.size() >= magic.size() && std::memcmp(bytes.data(), magic.data(), magic.size()) == 0,
          "[{}] not a token {}: it does not begin with {}", where, magic == kMagic ? "file" : "stream",
          magic);
  require(bytes.size() >= kHeaderBytes, "[{}] truncated: its header has {} bytes, {} are there", where,
          kHeaderBytes, bytes.size());
  const auto version = number<uint32_t>(bytes, 8);
  require(version == kVersion, "[{}] token file version {}, this melete reads version {}; try {}", where,
          version, kVersion, version > kVersion ? "updating melete" : "encoding it again");
  require(number<uint32_t>(bytes, 12) == kHeaderBytes,
          "[{}] absurd header: its size should be {}, it says {}; the file is damaged", where, kHeaderBytes,
          number<uint32_t>(bytes, 12));
  TokenHeader header;
  header.model = to_hex(bytes.subspan(16, 16));
  header.rate_hz = number<uint32_t>(bytes, 32);
  header.samples_per_frame = number<uint32_t>(bytes, 36);
  header.quantizers = number<uint32_t>(bytes, 40);
  header.groups = number<uint32_t>(bytes, 44);
  header.codebook_size = number<uint32_t>(bytes, 48);
  header.source_rate_hz = number<uint32_t>(bytes, 56);
  const std::string name(reinterpret_cast<const char*>(bytes.data()) + 64, kNameBytes);
  header.model_name = printable(name.substr(0, name.find('\0')));
  check(header, where);
  require(number<uint32_t>(bytes, 52) == static_cast<uint32_t>(header.bits_per_code()),
          "[{}] absurd header: {} codes need {} bits each, it says {}; the file is damaged", where,
          header.codebook_size, header.bits_per_code(), number<uint32_t>(bytes, 52));
  return header;
}

TokenWriter::TokenWriter(const std::string& path, const TokenHeader& header) : header_(header), file_(path) {
  const std::string bytes = token_header_bytes(header, kMagic, "write " + path);
  put(std::as_bytes(std::span(bytes)));
}

void TokenWriter::put(std::span<const std::byte> bytes) {
  checksum_.add(bytes);
  file_.write(bytes);
}

void TokenWriter::add(std::span<const int64_t> codes) {
  const int bits = header_.bits_per_code();
  require(codes.size() % static_cast<size_t>(header_.quantizers) == 0,
          "[write {}] expected whole frames of {} codes, got {} codes", file_.path(), header_.quantizers,
          codes.size());
  packed_.clear();
  for (const int64_t code : codes) {
    require(code >= 0 && code < header_.codebook_size, "[write {}] a code of {} in a codebook of {}",
            file_.path(), code, header_.codebook_size);
    pending_ |= static_cast<uint64_t>(code) << pending_bits_;
    pending_bits_ += bits;
    for (; pending_bits_ >= 8; pending_bits_ -= 8, pending_ >>= 8)
      packed_.push_back(static_cast<std::byte>(pending_));
  }
  put(packed_);
  frames_ += static_cast<int64_t>(codes.size()) / header_.quantizers;
}

void TokenWriter::commit(int64_t samples) {
  require(samples >= 0 && samples <= frames_ * header_.samples_per_frame,
          "[write {}] {} frames cannot cover {} samples", file_.path(), frames_, samples);
  if (pending_bits_ > 0) {
    const auto last = static_cast<std::byte>(pending_);
    put({&last, 1});
  }
  std::string text;
  append<uint64_t>(text, static_cast<uint64_t>(frames_));
  append<uint64_t>(text, static_cast<uint64_t>(samples));
  put(std::as_bytes(std::span(text)));
  file_.write(from_hex(checksum_.hex(), file_.path()));
  file_.commit();
}

TokenFile::TokenFile(const std::string& path) : where_(path) {
  const MappedFile file(path);
  mapping_ = file.owner;
  parse(file.bytes);
}

TokenFile::TokenFile(std::span<const std::byte> file, const std::string& where) : where_(where) {
  parse(file);
}

void TokenFile::parse(std::span<const std::byte> file) {
  require(file.size() >= kMagic.size() && std::memcmp(file.data(), kMagic.data(), kMagic.size()) == 0,
          "[{}] not a token file: it does not begin with {}", where_, kMagic);
  require(file.size() >= kHeaderBytes + kFooterBytes,
          "[{}] truncated: a token file has at least {} bytes, this one {}", where_,
          kHeaderBytes + kFooterBytes, file.size());
  header_ = token_header_of(file, kMagic, where_);

  const std::span<const std::byte> footer = file.last(kFooterBytes);
  const auto frames = number<uint64_t>(footer, 0), samples = number<uint64_t>(footer, 8);
  payload_ = file.subspan(kHeaderBytes, file.size() - kHeaderBytes - kFooterBytes);
  const auto frame_bits = static_cast<uint64_t>(header_.quantizers * header_.bits_per_code());
  require(frames <= payload_.size() * 8 / frame_bits && (frames * frame_bits + 7) / 8 == payload_.size(),
          "[{}] truncated or damaged: {} frames of {} bits do not make the {} bytes of codes that it has",
          where_, frames, frame_bits, payload_.size());
  require(samples <= frames * static_cast<uint64_t>(header_.samples_per_frame),
          "[{}] damaged: {} frames cannot cover {} samples", where_, frames, samples);
  Checksum checksum;
  checksum.add(file.first(file.size() - 16));
  require(checksum.hex() == to_hex(file.last(16)),
          "[{}] damaged: its checksum does not match its content; try encoding it again", where_);
  frames_ = static_cast<int64_t>(frames);
  samples_ = static_cast<int64_t>(samples);
}

std::vector<int64_t> TokenFile::codes(int64_t begin_frame, int64_t count) const {
  require(begin_frame >= 0 && count >= 0 && begin_frame <= frames_ && count <= frames_ - begin_frame,
          "[{}] expected frames within 0 to {}, got {} from {} on", where_, frames_, count, begin_frame);
  const int bits = header_.bits_per_code();
  std::vector<int64_t> result(static_cast<size_t>(count * header_.quantizers));
  uint64_t at = static_cast<uint64_t>(begin_frame * header_.quantizers) * static_cast<uint64_t>(bits);
  for (int64_t& code : result) {
    // At most 24 bits from any bit of a byte: four bytes hold them.
    uint64_t window = 0;
    for (size_t i = 0; i < 4 && at / 8 + i < payload_.size(); ++i)
      window |= static_cast<uint64_t>(payload_[at / 8 + i]) << (8 * i);
    code = static_cast<int64_t>((window >> (at % 8)) & ((uint64_t{1} << bits) - 1));
    require(code < header_.codebook_size, "[{}] damaged: a code of {} in a codebook of {}", where_, code,
            header_.codebook_size);
    at += static_cast<uint64_t>(bits);
  }
  return result;
}

}  // namespace melete

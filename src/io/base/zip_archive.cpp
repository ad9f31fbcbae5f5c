#include "io/base/zip_archive.h"

#include <array>
#include <cstring>

#include "core/base/error.h"
#include "io/base/mapped_file.h"

namespace melete {

namespace {

constexpr uint32_t kLocalMark = 0x04034b50, kCentralMark = 0x02014b50, kEndMark = 0x06054b50;
constexpr uint32_t kEnd64Mark = 0x06064b50, kLocator64Mark = 0x07064b50;
constexpr uint64_t kFull32 = 0xffffffffu;
constexpr uint64_t kAlignment = 64;

// Little-endian numbers at checked places.
class Fields {
 public:
  Fields(std::span<const std::byte> file, const std::string& where) : file_(file), where_(where) {}

  template <class T>
  T number(uint64_t at) const {
    need(at, sizeof(T));
    T value;
    std::memcpy(&value, file_.data() + at, sizeof(T));
    return value;
  }
  std::span<const std::byte> part(uint64_t at, uint64_t size) const {
    need(at, size);
    return file_.subspan(at, size);
  }
  std::string text(uint64_t at, uint64_t size) const {
    const auto bytes = part(at, size);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

 private:
  void need(uint64_t at, uint64_t size) const {
    require(at <= file_.size() && size <= file_.size() - at,
            "[{}] truncated or damaged zip archive: {} bytes at {} are past the end ({})", where_, size, at,
            file_.size());
  }
  std::span<const std::byte> file_;
  const std::string& where_;
};

struct Directory {
  uint64_t entries, size, offset;
};

Directory find_directory(const Fields& fields, std::span<const std::byte> file, const std::string& where) {
  constexpr uint64_t kEndSize = 22, kCommentLimit = 0xffff;
  require(file.size() >= kEndSize, "[{}] truncated zip archive: {} bytes", where, file.size());
  const uint64_t last = file.size() - kEndSize;
  const uint64_t first = last > kCommentLimit ? last - kCommentLimit : 0;
  for (uint64_t at = last + 1; at-- > first;) {
    if (fields.number<uint32_t>(at) != kEndMark) continue;
    if (fields.number<uint16_t>(at + 20) != last - at) continue;  // a comment that only looks like the mark
    Directory result{fields.number<uint16_t>(at + 10), fields.number<uint32_t>(at + 12),
                     fields.number<uint32_t>(at + 16)};
    if (at >= 20 && fields.number<uint32_t>(at - 20) == kLocator64Mark) {
      const auto at64 = fields.number<uint64_t>(at - 12);
      require(at64 < at && fields.number<uint32_t>(at64) == kEnd64Mark,
              "[{}] damaged zip archive: its 64-bit directory is not where it says", where);
      result = {fields.number<uint64_t>(at64 + 32), fields.number<uint64_t>(at64 + 40),
                fields.number<uint64_t>(at64 + 48)};
    }
    return result;
  }
  fail("[{}] truncated zip archive: its directory, which is at the end, is missing", where);
}

}  // namespace

bool looks_like_zip(std::span<const std::byte> file) {
  uint32_t mark = 0;
  if (file.size() < 4) return false;
  std::memcpy(&mark, file.data(), 4);
  return mark == kLocalMark || mark == kEndMark;
}

ZipArchive::ZipArchive(std::span<const std::byte> file, std::string where) : where_(std::move(where)) {
  const Fields fields(file, where_);
  const Directory directory = find_directory(fields, file, where_);
  // An entry takes 46 bytes at least: a count that the directory cannot hold ends at its end.
  uint64_t at = directory.offset;
  const uint64_t end = at + fields.part(directory.offset, directory.size).size();
  for (uint64_t i = 0; i < directory.entries; ++i) {
    require(at + 46 <= end && fields.number<uint32_t>(at) == kCentralMark,
            "[{}] damaged zip archive: entry {} of {} is not in the directory", where_, i, directory.entries);
    const auto flags = fields.number<uint16_t>(at + 8), method = fields.number<uint16_t>(at + 10);
    const auto checksum = fields.number<uint32_t>(at + 16);
    uint64_t packed = fields.number<uint32_t>(at + 20), size = fields.number<uint32_t>(at + 24);
    const auto name_size = fields.number<uint16_t>(at + 28), extra_size = fields.number<uint16_t>(at + 30);
    const auto comment_size = fields.number<uint16_t>(at + 32);
    uint64_t offset = fields.number<uint32_t>(at + 42);
    const std::string name = fields.text(at + 46, name_size);
    // The zip64 field holds, in this order, those numbers whose 32-bit place is full.
    uint64_t extra = at + 46 + name_size;
    const uint64_t extra_end = extra + extra_size;
    while (extra + 4 <= extra_end) {
      const auto id = fields.number<uint16_t>(extra), length = fields.number<uint16_t>(extra + 2);
      uint64_t place = extra + 4;
      const uint64_t place_end = place + length;
      if (id == 1)
        for (uint64_t* value : {&size, &packed, &offset})
          if (*value == kFull32 && place + 8 <= place_end && place_end <= extra_end) {
            *value = fields.number<uint64_t>(place);
            place += 8;
          }
      extra = place_end;
    }
    at = extra_end + comment_size;
    if (name.ends_with('/')) continue;
    require((flags & 1) == 0, "[{}] member '{}' is encrypted, which cannot be read", where_, printable(name));
    require(method == 0 && packed == size,
            "[{}] member '{}' is compressed; torch.save stores members as they are: try unpacking and "
            "packing it again with `zip -0`, or saving it again with torch.save",
            where_, printable(name));
    require(fields.number<uint32_t>(offset) == kLocalMark,
            "[{}] damaged zip archive: member '{}' is not at byte {}", where_, printable(name), offset);
    const uint64_t data =
        offset + 30 + fields.number<uint16_t>(offset + 26) + fields.number<uint16_t>(offset + 28);
    require(members_.emplace(name, Member{fields.part(data, size), checksum}).second,
            "[{}] damaged zip archive: two members are called '{}'", where_, printable(name));
  }
}

const ZipArchive::Member* ZipArchive::find(std::string_view name) const {
  const auto found = members_.find(name);
  return found == members_.end() ? nullptr : &found->second;
}

std::span<const std::byte> ZipArchive::checked(std::string_view name) const {
  const Member* member = find(name);
  require(member != nullptr, "[{}] the archive has no member '{}'", where_, printable(name));
  require(crc32(member->bytes) == member->crc32,
          "[{}] damaged: the checksum of member '{}' does not match its bytes; try copying the file again",
          where_, printable(name));
  return member->bytes;
}

void ZipWriter::put(std::string_view bytes) {
  file_.write(bytes);
  position_ += bytes.size();
}

namespace {

template <class T>
void append(std::string& text, T value) {
  text.append(reinterpret_cast<const char*>(&value), sizeof(T));
}

}  // namespace

void ZipWriter::add(const std::string& name, std::span<const std::byte> bytes) {
  const Entry entry{name, position_, bytes.size(), crc32(bytes)};
  entries_.push_back(entry);
  const bool large = entry.size >= kFull32;
  std::string extra;
  if (large) {
    append<uint16_t>(extra, 1);
    append<uint16_t>(extra, 16);
    append<uint64_t>(extra, entry.size);
    append<uint64_t>(extra, entry.size);
  }
  // A field that readers skip moves the data to the next multiple of 64.
  const uint64_t data_at = position_ + 30 + name.size() + extra.size() + 4;
  const uint64_t padding = (kAlignment - data_at % kAlignment) % kAlignment;
  append<uint16_t>(extra, 0x4246);
  append<uint16_t>(extra, static_cast<uint16_t>(padding));
  extra.append(padding, 'Z');

  std::string header;
  append<uint32_t>(header, kLocalMark);
  append<uint16_t>(header, large ? 45 : 20);
  append<uint16_t>(header, 0x0800);      // names are UTF-8
  append<uint16_t>(header, 0);           // stored
  append<uint32_t>(header, 0x00210000);  // 1980-01-01: the same tensors give the same bytes
  append<uint32_t>(header, entry.crc32);
  append<uint32_t>(header, static_cast<uint32_t>(large ? kFull32 : entry.size));
  append<uint32_t>(header, static_cast<uint32_t>(large ? kFull32 : entry.size));
  append<uint16_t>(header, static_cast<uint16_t>(name.size()));
  append<uint16_t>(header, static_cast<uint16_t>(extra.size()));
  put(header + name + extra);
  file_.write(bytes);
  position_ += bytes.size();
}

void ZipWriter::add(const std::string& name, std::string_view text) {
  add(name, std::as_bytes(std::span(text)));
}

void ZipWriter::finish() {
  const uint64_t begin = position_;
  for (const Entry& entry : entries_) {
    const bool large = entry.size >= kFull32, far = entry.offset >= kFull32;
    std::string extra;
    if (large || far) {
      append<uint16_t>(extra, 1);
      append<uint16_t>(extra, static_cast<uint16_t>((large ? 16 : 0) + (far ? 8 : 0)));
      if (large) {
        append<uint64_t>(extra, entry.size);
        append<uint64_t>(extra, entry.size);
      }
      if (far) append<uint64_t>(extra, entry.offset);
    }
    std::string header;
    append<uint32_t>(header, kCentralMark);
    append<uint16_t>(header, 45);
    append<uint16_t>(header, large || far ? 45 : 20);
    append<uint16_t>(header, 0x0800);
    append<uint16_t>(header, 0);
    append<uint32_t>(header, 0x00210000);
    append<uint32_t>(header, entry.crc32);
    append<uint32_t>(header, static_cast<uint32_t>(large ? kFull32 : entry.size));
    append<uint32_t>(header, static_cast<uint32_t>(large ? kFull32 : entry.size));
    append<uint16_t>(header, static_cast<uint16_t>(entry.name.size()));
    append<uint16_t>(header, static_cast<uint16_t>(extra.size()));
    append<uint16_t>(header, 0);  // comment
    append<uint16_t>(header, 0);  // disk
    append<uint16_t>(header, 0);  // attributes
    append<uint32_t>(header, 0);
    append<uint32_t>(header, static_cast<uint32_t>(far ? kFull32 : entry.offset));
    put(header + entry.name + extra);
  }
  const uint64_t size = position_ - begin, count = entries_.size();
  std::string end;
  if (count >= 0xffff || begin >= kFull32 || size >= kFull32) {
    const uint64_t at64 = position_;
    append<uint32_t>(end, kEnd64Mark);
    append<uint64_t>(end, 44);
    append<uint16_t>(end, 45);
    append<uint16_t>(end, 45);
    append<uint32_t>(end, 0);
    append<uint32_t>(end, 0);
    append<uint64_t>(end, count);
    append<uint64_t>(end, count);
    append<uint64_t>(end, size);
    append<uint64_t>(end, begin);
    append<uint32_t>(end, kLocator64Mark);
    append<uint32_t>(end, 0);
    append<uint64_t>(end, at64);
    append<uint32_t>(end, 1);
  }
  append<uint32_t>(end, kEndMark);
  append<uint16_t>(end, 0);
  append<uint16_t>(end, 0);
  append<uint16_t>(end, static_cast<uint16_t>(std::min<uint64_t>(count, 0xffff)));
  append<uint16_t>(end, static_cast<uint16_t>(std::min<uint64_t>(count, 0xffff)));
  append<uint32_t>(end, static_cast<uint32_t>(std::min(size, kFull32)));
  append<uint32_t>(end, static_cast<uint32_t>(std::min(begin, kFull32)));
  append<uint16_t>(end, 0);
  put(end);
}

uint32_t crc32(std::span<const std::byte> bytes) {
  // Eight tables, so that eight bytes are taken at a time: checkpoints are large.
  static const auto tables = [] {
    std::array<std::array<uint32_t, 256>, 8> made{};
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t value = i;
      for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) ? 0xedb88320u : 0u);
      made[0][i] = value;
    }
    for (size_t table = 1; table < 8; ++table)
      for (size_t i = 0; i < 256; ++i)
        made[table][i] = (made[table - 1][i] >> 8) ^ made[0][made[table - 1][i] & 0xff];
    return made;
  }();
  uint32_t crc = 0xffffffffu;
  size_t at = 0;
  for (; at + 8 <= bytes.size(); at += 8) {
    uint64_t word;
    std::memcpy(&word, bytes.data() + at, 8);
    word ^= crc;
    crc = 0;
    for (size_t i = 0; i < 8; ++i) crc ^= tables[7 - i][(word >> (8 * i)) & 0xff];
  }
  for (; at < bytes.size(); ++at)
    crc = (crc >> 8) ^ tables[0][(crc ^ static_cast<uint32_t>(bytes[at])) & 0xffu];
  return crc ^ 0xffffffffu;
}

}  // namespace melete

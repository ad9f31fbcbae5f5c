#include "io/base/safetensors.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "core/base/error.h"
#include "io/base/atomic_file.h"
#include "io/base/mapped_file.h"

namespace melete {

static_assert(std::endian::native == std::endian::little, "safetensors bytes are little-endian");

namespace {

using nlohmann::json;

constexpr uint64_t kHeaderLimit = 100'000'000;
constexpr size_t kRankLimit = 64;
constexpr const char* kMetadata = "__metadata__";

struct DTypeRow {
  DType dtype;
  std::string_view name;
  size_t bytes;
};
constexpr std::array<DTypeRow, 10> kDTypes{{{DType::f64, "F64", 8},
                                            {DType::f32, "F32", 4},
                                            {DType::f16, "F16", 2},
                                            {DType::bf16, "BF16", 2},
                                            {DType::i64, "I64", 8},
                                            {DType::i32, "I32", 4},
                                            {DType::i16, "I16", 2},
                                            {DType::i8, "I8", 1},
                                            {DType::u8, "U8", 1},
                                            {DType::boolean, "BOOL", 1}}};

const DTypeRow& row_of(DType dtype) {
  for (const DTypeRow& row : kDTypes)
    if (row.dtype == dtype) return row;
  fail("[safetensors] unknown element type {}", static_cast<int>(dtype));
}

// The number of bytes of a tensor, or nothing when it does not fit into 63 bits.
std::optional<uint64_t> bytes_needed(DType dtype, const std::vector<int64_t>& shape) {
  uint64_t total = row_of(dtype).bytes;
  for (const int64_t size : shape) {
    if (size < 0) return std::nullopt;
    if (__builtin_mul_overflow(total, static_cast<uint64_t>(size), &total)) return std::nullopt;
  }
  if (total > static_cast<uint64_t>(INT64_MAX)) return std::nullopt;
  return total;
}

struct Entry {
  std::string name;
  std::optional<DType> dtype;
  std::optional<std::vector<int64_t>> shape;
  std::optional<std::vector<int64_t>> offsets;
};

// Reads the header as a stream of events. The three levels that the format knows are the only ones accepted,
// so depth is bounded; duplicate names, which a document tree would silently merge, are seen.
class HeaderReader : public nlohmann::json_sax<json> {
 public:
  HeaderReader(std::string where, std::vector<Entry>& entries, TextMap& metadata)
      : where_(std::move(where)), entries_(entries), metadata_(metadata) {}

  bool start_object(std::size_t) override {
    if (level_ == Level::outside) {
      level_ = Level::root;
    } else if (level_ == Level::root) {
      level_ = key_ == kMetadata ? Level::metadata : Level::tensor;
      if (level_ == Level::tensor)
        entries_.push_back({key_, {}, {}, {}});
      else if (seen_metadata_)
        bad("has two {} sections", kMetadata);
      else
        seen_metadata_ = true;
    } else {
      bad("has an object where none belongs (in '{}')", printable(key_));
    }
    return true;
  }
  bool end_object() override {
    if (level_ == Level::tensor) {
      const Entry& entry = entries_.back();
      if (!entry.dtype || !entry.shape || !entry.offsets)
        bad("lacks dtype, shape or data_offsets for tensor '{}'", printable(entry.name));
    }
    level_ = level_ == Level::root ? Level::outside : Level::root;
    return true;
  }
  bool key(std::string& text) override {
    key_ = text;
    return true;
  }
  bool start_array(std::size_t) override {
    if (level_ != Level::tensor) bad("has a list where none belongs (in '{}')", printable(key_));
    Entry& entry = entries_.back();
    std::optional<std::vector<int64_t>>& list = key_ == "shape" ? entry.shape : entry.offsets;
    if (key_ != "shape" && key_ != "data_offsets")
      bad("has an unknown field '{}' in tensor '{}'", printable(key_), printable(entry.name));
    if (list) bad("repeats '{}' in tensor '{}'", printable(key_), printable(entry.name));
    list.emplace();
    list_ = &*list;
    level_ = Level::list;
    return true;
  }
  bool end_array() override {
    if (key_ == "data_offsets" && list_->size() != 2)
      bad("needs two data_offsets for tensor '{}', got {}", printable(entries_.back().name), list_->size());
    level_ = Level::tensor;
    return true;
  }
  bool string(std::string& text) override {
    if (level_ == Level::metadata) {
      if (!metadata_.emplace(key_, text).second) bad("repeats the metadata key '{}'", printable(key_));
      return true;
    }
    if (level_ != Level::tensor || key_ != "dtype") return misplaced("text");
    Entry& entry = entries_.back();
    if (entry.dtype) bad("repeats 'dtype' in tensor '{}'", printable(entry.name));
    for (const DTypeRow& row : kDTypes)
      if (row.name == text) entry.dtype = row.dtype;
    if (!entry.dtype)
      bad("has element type '{}' for tensor '{}', which is not one of F64 F32 F16 BF16 I64 I32 I16 I8 U8 "
          "BOOL",
          printable(text), printable(entry.name));
    return true;
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (level_ != Level::list) return misplaced("a number");
    if (value > static_cast<uint64_t>(INT64_MAX))
      bad("has a number in tensor '{}' that is too large: {}", printable(entries_.back().name), value);
    if (list_->size() >= kRankLimit) bad("has more than {} dimensions in a tensor", kRankLimit);
    list_->push_back(static_cast<int64_t>(value));
    return true;
  }
  bool number_integer(number_integer_t value) override {
    if (level_ == Level::list)
      bad("has a negative number in tensor '{}': {}", printable(entries_.back().name), value);
    return misplaced("a number");
  }
  bool number_float(number_float_t, const string_t&) override { return misplaced("a fraction"); }
  bool null() override { return misplaced("null"); }
  bool boolean(bool) override { return misplaced("true or false"); }
  bool binary(binary_t&) override { return misplaced("binary data"); }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override {
    bad("is not valid JSON (at byte {} of it)", position);
  }

 private:
  enum class Level { outside, root, metadata, tensor, list };

  template <class... Args>
  [[noreturn]] void bad(fmt::format_string<Args...> format, Args&&... args) {
    fail("[{}] not a sound safetensors file: the header {}", where_,
         fmt::format(format, std::forward<Args>(args)...));
  }
  bool misplaced(const char* what) {
    bad("has {} where it does not belong (in '{}')", what, printable(key_));
  }

  std::string where_, key_;
  std::vector<Entry>& entries_;
  TextMap& metadata_;
  std::vector<int64_t>* list_ = nullptr;
  Level level_ = Level::outside;
  bool seen_metadata_ = false;
};

}  // namespace

size_t byte_size(DType dtype) {
  return row_of(dtype).bytes;
}

std::string_view dtype_name(DType dtype) {
  return row_of(dtype).name;
}

void parse_safetensors(std::span<const std::byte> file, const std::string& where,
                       std::vector<TensorBytes>& tensors, TextMap& metadata) {
  require(file.size() >= 8, "[{}] truncated: a safetensors file has at least 8 bytes, got {}", where,
          file.size());
  uint64_t header_size = 0;
  std::memcpy(&header_size, file.data(), 8);
  require(header_size <= kHeaderLimit,
          "[{}] oversized header: at most {} bytes expected, its length field says {}; not a safetensors "
          "file, or a "
          "damaged one",
          where, kHeaderLimit, header_size);
  require(header_size <= file.size() - 8, "[{}] truncated: the header needs {} bytes, the file has {}", where,
          header_size, file.size() - 8);
  const char* text = reinterpret_cast<const char*>(file.data()) + 8;
  require(header_size >= 2 && text[0] == '{',
          "[{}] not a safetensors file: the header does not start with '{{'", where);

  std::vector<Entry> entries;
  metadata.clear();
  tensors.clear();
  HeaderReader reader(where, entries, metadata);
  json::sax_parse(text, text + header_size, &reader);

  const std::span<const std::byte> data = file.subspan(8 + header_size);
  // An empty tensor that sits at the start of another one comes before it.
  std::vector<const Entry*> by_offset;
  for (const Entry& entry : entries) by_offset.push_back(&entry);
  std::sort(by_offset.begin(), by_offset.end(),
            [](const Entry* a, const Entry* b) { return *a->offsets < *b->offsets; });
  uint64_t position = 0;
  std::set<std::string_view> names;
  for (const Entry* at : by_offset) {
    const Entry& entry = *at;
    require(names.insert(entry.name).second, "[{}] two tensors are called '{}'", where,
            printable(entry.name));
    const uint64_t begin = static_cast<uint64_t>((*entry.offsets)[0]);
    const uint64_t end = static_cast<uint64_t>((*entry.offsets)[1]);
    require(begin <= end, "[{}] tensor '{}' ends ({}) before it begins ({})", where, printable(entry.name),
            end, begin);
    require(end <= data.size(), "[{}] truncated: tensor '{}' ends at byte {} of the data, the file has {}",
            where, printable(entry.name), end, data.size());
    require(begin == position, "[{}] tensor '{}' {} (begins at {}, expected {})", where,
            printable(entry.name), begin < position ? "overlaps another" : "has a hole before it", begin,
            position);
    const std::optional<uint64_t> needed = bytes_needed(*entry.dtype, *entry.shape);
    require(needed.has_value(), "[{}] tensor '{}' has a shape too large for any machine", where,
            printable(entry.name));
    require(*needed == end - begin,
            "[{}] tensor '{}' needs {} bytes by its shape and type, its offsets give {}", where,
            printable(entry.name), *needed, end - begin);
    tensors.push_back({entry.name, *entry.dtype, *entry.shape, data.subspan(begin, end - begin)});
    position = end;
  }
  require(position == data.size(), "[{}] {} bytes after the last tensor belong to none; damaged file", where,
          data.size() - position);
}

SafetensorsFile::SafetensorsFile(const std::string& path) {
  const MappedFile file(path);
  mapping_ = file.owner;
  parse_safetensors(file.bytes, path, tensors_, metadata_);
  for (size_t i = 0; i < tensors_.size(); ++i) index_.emplace(tensors_[i].name, i);
}

const TensorBytes* SafetensorsFile::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

void write_safetensors(const std::string& path, std::vector<TensorBytes> tensors, const TextMap& metadata) {
  std::sort(tensors.begin(), tensors.end(), [](const TensorBytes& a, const TensorBytes& b) {
    const size_t width_a = byte_size(a.dtype), width_b = byte_size(b.dtype);
    return width_a != width_b ? width_a > width_b : a.name < b.name;
  });
  std::string text = "{";
  std::set<std::string> names;
  uint64_t position = 0;
  try {
    if (!metadata.empty()) text += fmt::format("\"{}\":{},", kMetadata, json(metadata).dump());
    for (const TensorBytes& tensor : tensors) {
      require(tensor.name != kMetadata, "[write {}] '{}' cannot be the name of a tensor", path, kMetadata);
      require(names.insert(tensor.name).second, "[write {}] two tensors are called '{}'", path, tensor.name);
      require(bytes_needed(tensor.dtype, tensor.shape) == tensor.bytes.size(),
              "[write {}] tensor '{}' has {} bytes, which is not what its shape and type need", path,
              tensor.name, tensor.bytes.size());
      text += fmt::format("{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}},",
                          json(tensor.name).dump(), dtype_name(tensor.dtype), fmt::join(tensor.shape, ","),
                          position, position + tensor.bytes.size());
      position += tensor.bytes.size();
    }
  } catch (const json::exception& error) {
    fail("[write {}] a name or metadata text is not UTF-8: {}", path, error.what());
  }
  if (text.size() > 1) text.pop_back();
  text += "}";
  text.resize((text.size() + 7) / 8 * 8, ' ');
  require(text.size() <= kHeaderLimit,
          "[write {}] the header has {} bytes, more than the {} that readers accept", path, text.size(),
          kHeaderLimit);

  const uint64_t length = text.size();
  AtomicFile file(path);
  file.write(std::as_bytes(std::span(&length, 1)));
  file.write(text);
  for (const TensorBytes& tensor : tensors) file.write(tensor.bytes);
  file.commit();
}

}  // namespace melete

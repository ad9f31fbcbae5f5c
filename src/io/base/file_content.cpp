#include "io/base/file_content.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "io/base/mapped_file.h"
#include "io/base/safetensors.h"
#include "io/base/token_file.h"
#include "io/base/torch_file.h"

namespace melete {

namespace {

std::string element_name(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return "float64";
    case DType::f32:
      return "float32";
    case DType::f16:
      return "float16";
    case DType::bf16:
      return "bfloat16";
    case DType::i64:
      return "int64";
    case DType::i32:
      return "int32";
    case DType::i16:
      return "int16";
    case DType::i8:
      return "int8";
    case DType::u8:
      return "uint8";
    case DType::boolean:
      return "bool";
  }
  return "?";
}

// Settings nested in JSON as dotted lines.
void flatten(const nlohmann::ordered_json& value, const std::string& name,
             std::vector<std::pair<std::string, std::string>>& facts) {
  if (value.is_object() && !value.empty()) {
    for (const auto& [key, item] : value.items()) flatten(item, name.empty() ? key : name + "." + key, facts);
    return;
  }
  facts.emplace_back(name, printable(value.dump(), 200));
}

FileContent of_safetensors(const std::string& path) {
  const SafetensorsFile file(path);
  FileContent content{path, "safetensors", {}, {}, file.mapping()};
  for (const auto& [key, text] : file.metadata()) {
    const auto json = nlohmann::ordered_json::parse(text, nullptr, false);
    if (key == "melete.meta" && json.is_object()) {
      content.format = "checkpoint of melete (safetensors)";
      for (const auto& [name, value] : json.items()) {
        if (name == "foreign")
          content.facts.emplace_back("imported from",
                                     value.value("from", "?") + " (" + value.value("file", "?") + ")");
        else
          flatten(value, name, content.facts);
      }
    } else {
      content.facts.emplace_back(key, printable(text, 200));
    }
  }
  for (const TensorBytes& tensor : file.tensors()) {
    PickleTensor made;
    made.dtype = tensor.dtype;
    made.element = element_name(tensor.dtype);
    made.element_bytes = byte_size(tensor.dtype);
    made.shape = tensor.shape;
    made.strides.assign(tensor.shape.size(), 1);
    for (size_t i = tensor.shape.size(); i-- > 1;)
      made.strides[i - 1] = tensor.bytes.empty() ? 1 : made.strides[i] * tensor.shape[i];
    made.bytes = tensor.bytes;
    content.tensors.push_back({tensor.name, std::move(made)});
  }
  std::sort(content.tensors.begin(), content.tensors.end(),
            [](const FileTensor& a, const FileTensor& b) { return a.name < b.name; });
  return content;
}

class PickleWalker {
 public:
  explicit PickleWalker(FileContent& content) : content_(content) {}

  void walk(const PickleValue& value, const std::string& name) {
    using Kind = PickleValue::Kind;
    if (const PickleTensor* tensor = value.tensor()) {
      content_.tensors.push_back({name, *tensor});
      return;
    }
    const auto below = [&](const std::string& key) { return name.empty() ? key : name + "." + key; };
    const PickleObject* object = value.object();
    if (object)
      content_.facts.emplace_back(name.empty() ? "(root)" : name, "object " + printable(object->name));
    if (object && object->state) walk(*object->state, name);
    if (const PickleDict* dict = value.dict()) {
      for (const auto& [key, held] : dict->entries)
        walk(*held, below(key->text()      ? printable(*key->text(), 200)
                          : key->integer() ? std::to_string(*key->integer())
                                           : "?"));
      return;
    }
    if (const PickleValue::Items* items = value.items()) {
      std::vector<std::string> plain;
      for (const PickleValue* item : *items) {
        if (item->items() || item->dict() || item->tensor()) break;
        plain.push_back(shown(*item));
      }
      if (plain.size() == items->size())
        content_.facts.emplace_back(
            name, plain.size() > 12 ? fmt::format("{} of {} values", value.kind_name(), plain.size())
                                    : fmt::format("[{}]", fmt::join(plain, ", ")));
      else
        for (size_t i = 0; i < items->size(); ++i) walk(*(*items)[i], below(std::to_string(i)));
      return;
    }
    // Settings are often a pickle within the pickle.
    if (value.is(Kind::bytes) && value.text()->size() > 2 && value.text()->front() == '\x80') {
      try {
        const PickleTree inner = unpickle(std::as_bytes(std::span(*value.text())), name);
        if (inner.root().dict()) return walk(inner.root(), name);
      } catch (const Error& error) {
        content_.facts.emplace_back(name, fmt::format("a pickle that was not read: {}", error.what()));
        return;
      }
    }
    content_.facts.emplace_back(name, shown(value));
  }

 private:
  static std::string shown(const PickleValue& value) {
    using Kind = PickleValue::Kind;
    switch (value.kind) {
      case Kind::none:
        return "None";
      case Kind::boolean:
        return *value.integer() ? "True" : "False";
      case Kind::integer:
        return value.text() ? printable(*value.text()) : std::to_string(*value.integer());
      case Kind::real:
        return fmt::format("{}", *value.number());
      case Kind::text:
        return "'" + printable(*value.text(), 120) + "'";
      case Kind::bytes:
        return fmt::format("{} bytes", value.text()->size());
      case Kind::name:
        return printable(*value.text(), 120);
      default:
        return std::string(value.kind_name());
    }
  }

  FileContent& content_;
};

FileContent of_tokens(const std::string& path) {
  const TokenFile file(path);
  const TokenHeader& header = file.header();
  FileContent content{path, "tokens", {}, {}, {}};
  const double bits = static_cast<double>(header.quantizers * header.bits_per_code());
  content.facts = {
      {"model", header.model_name},
      {"identity", header.model},
      {"seconds", fmt::format("{:.3f}", file.seconds())},
      {"samples", std::to_string(file.samples())},
      {"rate", fmt::format("{} Hz (the recording had {} Hz)", header.rate_hz, header.source_rate_hz)},
      {"frames", fmt::format("{} of {} samples", file.frames(), header.samples_per_frame)},
      {"codes of a frame",
       fmt::format("{} in {} groups, of {} each", header.quantizers, header.groups, header.codebook_size)},
      {"bitrate", fmt::format("{:.2f} kbit/s", bits * static_cast<double>(header.rate_hz) /
                                                   static_cast<double>(header.samples_per_frame) / 1000)}};
  return content;
}

double half(uint16_t bits) {
  const int exponent = (bits >> 10) & 31, fraction = bits & 1023;
  const double sign = bits & 0x8000 ? -1 : 1;
  if (exponent == 31) return fraction ? NAN : sign * INFINITY;
  return sign * (exponent ? std::ldexp(1024 + fraction, exponent - 25) : std::ldexp(fraction, -24));
}

template <class T>
T read_as(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

double number_at(DType dtype, const std::byte* at) {
  switch (dtype) {
    case DType::f64:
      return read_as<double>(at);
    case DType::f32:
      return read_as<float>(at);
    case DType::f16:
      return half(read_as<uint16_t>(at));
    case DType::bf16:
      return std::bit_cast<float>(static_cast<uint32_t>(read_as<uint16_t>(at)) << 16);
    case DType::i64:
      return static_cast<double>(read_as<int64_t>(at));
    case DType::i32:
      return read_as<int32_t>(at);
    case DType::i16:
      return read_as<int16_t>(at);
    case DType::i8:
      return read_as<int8_t>(at);
    case DType::u8:
    case DType::boolean:
      return read_as<uint8_t>(at);
  }
  return 0;
}

// Row by row. A hostile tensor may say that it fills more than its storage: only what is there is looked at.
std::vector<std::byte> row_major(const FileTensor& tensor) {
  const auto size = static_cast<size_t>(tensor.tensor.numel()) * tensor.tensor.element_bytes;
  require(size <= tensor.tensor.bytes.size(), "[inspect] '{}' repeats the {} bytes of its storage to fill {}",
          printable(tensor.name), tensor.tensor.bytes.size(), size);
  std::vector<std::byte> bytes(size);
  copy_contiguous(tensor.tensor, bytes);
  return bytes;
}

bool compare(const FileTensor& a, const FileTensor& b, TensorDifference& difference) {
  if (a.tensor.shape != b.tensor.shape) {
    difference.what =
        fmt::format("shape [{}] and [{}]", fmt::join(a.tensor.shape, ", "), fmt::join(b.tensor.shape, ", "));
    return false;
  }
  if (a.tensor.element != b.tensor.element) {
    difference.what = fmt::format("type {} and {}", a.tensor.element, b.tensor.element);
    return false;
  }
  const std::vector<std::byte> left = row_major(a), right = row_major(b);
  if (left == right) return true;
  difference.what = "values";
  difference.count = a.tensor.numel();
  if (!a.tensor.dtype) return false;
  const size_t width = a.tensor.element_bytes;
  for (size_t at = 0; at + width <= left.size(); at += width) {
    if (std::memcmp(left.data() + at, right.data() + at, width) == 0) continue;
    ++difference.differing;
    const double distance = std::abs(number_at(*a.tensor.dtype, left.data() + at) -
                                     number_at(*a.tensor.dtype, right.data() + at));
    if (!(distance <= difference.largest)) difference.largest = distance;  // not a number counts, too
  }
  return false;
}

}  // namespace

FileContent read_file_content(const std::string& path) {
  const MappedFile file(path);
  const std::string_view begin(reinterpret_cast<const char*>(file.bytes.data()),
                               std::min<size_t>(file.bytes.size(), 8));
  if (begin == "MELTOKEN") return of_tokens(path);
  if (looks_like_torch_file(file.bytes)) {
    const auto torch = std::make_shared<TorchFile>(path);
    FileContent content{path, torch->legacy() ? "torch (before 1.6)" : "torch (zip)", {}, {}, torch};
    PickleWalker(content).walk(torch->root(), "");
    return content;
  }
  // A pickle of protocol 2 or later says so; anything else is taken for safetensors, which says what is
  // wrong.
  if (file.bytes.size() > 2 && file.bytes[0] == std::byte{0x80} && file.bytes[1] <= std::byte{5}) {
    auto pickle = std::make_shared<PickleFile>(path);
    FileContent content{path, "pickle", {}, {}, pickle};
    PickleWalker(content).walk(pickle->root(), "");
    return content;
  }
  return of_safetensors(path);
}

std::vector<TensorDifference> compare_files(const FileContent& first, const FileContent& second,
                                            int64_t& equal) {
  std::map<std::string, std::pair<const FileTensor*, const FileTensor*>> by_name;
  for (const FileTensor& tensor : first.tensors) by_name[tensor.name].first = &tensor;
  for (const FileTensor& tensor : second.tensors) by_name[tensor.name].second = &tensor;
  std::vector<TensorDifference> differences;
  equal = 0;
  for (const auto& [name, pair] : by_name) {
    TensorDifference difference;
    difference.name = name;
    if (!pair.first || !pair.second) {
      difference.what = pair.first ? "only in the first" : "only in the second";
    } else if (compare(*pair.first, *pair.second, difference)) {
      ++equal;
      continue;
    }
    differences.push_back(difference);
  }
  return differences;
}

}  // namespace melete

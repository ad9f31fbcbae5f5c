#include "io/base/pickle_json.h"

#include <cmath>
#include <cstring>

#include "core/base/error.h"
#include "io/base/mapped_file.h"

namespace melete {

namespace {

using Json = nlohmann::ordered_json;
using Kind = PickleValue::Kind;

std::string joined(const std::string& path, const std::string& name) {
  return path.empty() ? name : path + "." + name;
}

std::string hex(const std::string& bytes) {
  std::string result;
  for (const char c : bytes) result += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return result;
}

std::string from_hex(const std::string& text) {
  std::string result;
  const auto digit = [&](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    require(c >= 'a' && c <= 'f', "[pickle] '{}' is not a hexadecimal digit", c);
    return c - 'a' + 10;
  };
  require(text.size() % 2 == 0, "[pickle] bytes with half a byte");
  for (size_t i = 0; i < text.size(); i += 2)
    result += static_cast<char>(digit(text[i]) * 16 + digit(text[i + 1]));
  return result;
}

// JSON texts are UTF-8; what is not becomes bytes.
bool is_utf8(const std::string& text) {
  try {
    (void)Json(text).dump();
    return true;
  } catch (const nlohmann::json::exception&) {
    return false;
  }
}

class Reader {
 public:
  explicit Reader(const TensorToJson& tensor) : tensor_(tensor) {}

  Json read(const PickleValue& value, const std::string& path) const {
    switch (value.kind) {
      case Kind::none:
        return nullptr;
      case Kind::boolean:
        return value.integer() != 0;
      case Kind::integer:
        if (value.text()) return {{"$integer", *value.text()}};
        return *value.integer();
      case Kind::real: {
        const double number = *value.number();
        if (std::isfinite(number)) return number;
        return {{"$float", std::isnan(number) ? "nan" : number > 0 ? "inf" : "-inf"}};
      }
      case Kind::text:
        if (is_utf8(*value.text())) return *value.text();
        return {{"$bytes", hex(*value.text())}};
      case Kind::bytes:
        return {{"$bytes", hex(*value.text())}};
      case Kind::name:
        return {{"$name", printable(*value.text(), 200)}};
      case Kind::list:
        return items(*value.items(), path);
      case Kind::tuple:
        return {{"$tuple", items(*value.items(), path)}};
      case Kind::set:
        return {{"$set", items(*value.items(), path)}};
      case Kind::tensor:
        return tensor_(*value.tensor(), path);
      case Kind::dict:
        return dict(value, path);
      case Kind::object:
        break;
    }
    const PickleObject& object = *value.object();
    Json result = {{"$object", printable(object.name, 200)}};
    if (object.state) result["state"] = read(*object.state, path);
    if (!object.items.entries.empty()) result["items"] = pairs(object.items, path);
    if (!object.elements.empty()) result["elements"] = items(object.elements, path);
    return result;
  }

 private:
  Json items(const PickleValue::Items& list, const std::string& path) const {
    Json result = Json::array();
    for (size_t i = 0; i < list.size(); ++i)
      result.push_back(read(*list[i], joined(path, std::to_string(i))));
    return result;
  }
  std::string key_text(const PickleValue& key) const {
    if (key.text()) return printable(*key.text(), 1000);
    return key.integer() ? std::to_string(*key.integer()) : "?";
  }
  Json pairs(const PickleDict& dict, const std::string& path) const {
    Json result = Json::array();
    for (const auto& [key, held] : dict.entries)
      result.push_back({read(*key, ""), read(*held, joined(path, key_text(*key)))});
    return result;
  }
  Json dict(const PickleValue& value, const std::string& path) const {
    const PickleDict& held = *value.dict();
    bool plain = !value.ordered;
    for (const auto& [key, item] : held.entries)
      plain = plain && key->is(Kind::text) && !key->text()->starts_with('$') && is_utf8(*key->text());
    if (!plain) return {{value.ordered ? "$ordered" : "$dict", pairs(held, path)}};
    Json result = Json::object();
    for (const auto& [key, item] : held.entries)
      result[*key->text()] = read(*item, joined(path, *key->text()));
    return result;
  }

  const TensorToJson& tensor_;
};

class Writer {
 public:
  explicit Writer(const TensorOpcodes& tensor) : tensor_(tensor) {}

  std::string write(const Json& value) const {
    switch (value.type()) {
      case Json::value_t::null:
        return "N";
      case Json::value_t::boolean:
        return value.get<bool>() ? "\x88" : "\x89";
      case Json::value_t::number_integer:
      case Json::value_t::number_unsigned:
        return whole(value.get<int64_t>());
      case Json::value_t::number_float:
        return real(value.get<double>());
      case Json::value_t::string:
        return text(value.get<std::string>());
      case Json::value_t::array:
        return list(value);
      case Json::value_t::object:
        break;
      default:
        fail("[pickle] a JSON value that Python has no counterpart of");
    }
    if (value.size() >= 1 && value.begin().key().starts_with('$')) return tagged(value);
    std::string result = "}";
    if (value.empty()) return result;
    result += "(";
    for (const auto& [key, item] : value.items()) result += text(key) + write(item);
    return result + "u";
  }

 private:
  template <class T>
  static std::string raw(T value) {
    return {reinterpret_cast<const char*>(&value), sizeof(T)};
  }
  static std::string text(const std::string& value) {
    return "X" + raw(static_cast<uint32_t>(value.size())) + value;
  }
  static std::string whole(int64_t value) {
    if (value >= INT32_MIN && value <= INT32_MAX) return "J" + raw(static_cast<int32_t>(value));
    return std::string("\x8a\x08", 2) + raw(value);
  }
  static std::string real(double value) {
    uint64_t bits;
    std::memcpy(&bits, &value, 8);
    return "G" + raw(__builtin_bswap64(bits));
  }
  std::string list(const Json& value) const {
    std::string result = "]";
    if (value.empty()) return result;
    result += "(";
    for (const Json& item : value) result += write(item);
    return result + "e";
  }
  std::string entries(const Json& value) const {
    if (value.empty()) return "";
    std::string result = "(";
    for (const Json& pair : value) {
      require(pair.is_array() && pair.size() == 2, "[pickle] a dict's entry that is no pair");
      result += write(pair[0]) + write(pair[1]);
    }
    return result + "u";
  }
  std::string tagged(const Json& value) const {
    const std::string& tag = value.begin().key();
    const Json& held = value.begin().value();
    if (tag == "$tuple") {
      std::string result = "(";
      for (const Json& item : held) result += write(item);
      return result + "t";
    }
    if (tag == "$dict") return "}" + entries(held);
    if (tag == "$ordered") return "ccollections\nOrderedDict\n)R" + entries(held);
    if (tag == "$float") {
      const std::string name = held.get<std::string>();
      return real(name == "nan" ? NAN : name == "inf" ? INFINITY : -INFINITY);
    }
    if (tag == "$bytes") {
      // As protocol 2 has no bytes: characters 0 to 255, encoded as Latin-1 when read.
      std::string utf8;
      for (const char c : from_hex(held.get<std::string>())) {
        const auto byte = static_cast<unsigned char>(c);
        if (byte < 0x80) {
          utf8 += c;
        } else {
          utf8 += static_cast<char>(0xc0 | (byte >> 6));
          utf8 += static_cast<char>(0x80 | (byte & 0x3f));
        }
      }
      return "c_codecs\nencode\n(" + text(utf8) + text("latin1") + "tR";
    }
    if (tag == "$tensor") {
      require(static_cast<bool>(tensor_), "[pickle] a tensor where none can be written");
      return tensor_(value);
    }
    fail("[pickle] {} cannot be written", tag);
  }

  const TensorOpcodes& tensor_;
};

}  // namespace

Json pickle_to_json(const PickleValue& value, const TensorToJson& tensor, const std::string& path) {
  return Reader(tensor).read(value, path);
}

std::string json_to_pickle(const Json& value, const TensorOpcodes& tensor) {
  return std::string("\x80\x02", 2) + Writer(tensor).write(value) + ".";
}

}  // namespace melete

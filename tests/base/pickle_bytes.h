// Pickles written opcode by opcode, for tests of the reader.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>

namespace melete::testing {

template <class T>
std::string raw(T value) {
  std::string bytes(sizeof(T), '\0');
  std::memcpy(bytes.data(), &value, sizeof(T));
  return bytes;
}

inline std::string proto() {
  return std::string("\x80\x02", 2);
}
inline std::string text(const std::string& value) {
  return "X" + raw(static_cast<uint32_t>(value.size())) + value;
}
inline std::string bytes(const std::string& value) {
  return "B" + raw(static_cast<uint32_t>(value.size())) + value;
}
inline std::string number(int32_t value) {
  return "J" + raw(value);
}
inline std::string global(const std::string& module, const std::string& name) {
  return "c" + module + "\n" + name + "\n";
}
inline std::string tuple(const std::string& items) {
  return "(" + items + "t";
}
inline std::string dict(const std::string& pairs) {
  return "}(" + pairs + "u";
}

// One tensor over storage `key`, as torch.save writes it.
inline std::string tensor(const std::string& storage_type, const std::string& key, int32_t elements,
                          int32_t offset, const std::string& shape, const std::string& strides) {
  return global("torch._utils", "_rebuild_tensor_v2") +
         tuple(tuple(text("storage") + global("torch", storage_type) + text(key) + text("cpu") +
                     number(elements)) +
               "Q" + number(offset) + tuple(shape) + tuple(strides) + "\x89" +
               global("collections", "OrderedDict") + ")R") +
         "R";
}

}  // namespace melete::testing

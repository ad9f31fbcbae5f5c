#include "data/base/html_entities.h"

#include <cstdint>
#include <unordered_map>

#include "data/base/unicode.h"

namespace melete {

namespace {

constexpr std::string_view kTable =
#include "data/base/html_entities.inc"
    ;

constexpr size_t kLongestName = 32;

struct Entity {
  std::u32string text;
  bool needs_semicolon = true;
};

const std::unordered_map<std::string, Entity>& entities() {
  static const auto table = [] {
    std::unordered_map<std::string, Entity> made;
    for (size_t at = 0; at < kTable.size();) {
      const size_t end = kTable.find(' ', at), equals = kTable.find('=', at);
      const bool old = kTable[at] == '*';
      Entity entity;
      entity.needs_semicolon = !old;
      char32_t point = 0;
      for (const char c : kTable.substr(equals + 1, end - equals - 1)) {
        if (c == '+') {
          entity.text += point;
          point = 0;
        } else {
          point = point * 16 + static_cast<char32_t>(c <= '9' ? c - '0' : c - 'A' + 10);
        }
      }
      entity.text += point;
      made.emplace(kTable.substr(at + (old ? 1 : 0), equals - at - (old ? 1 : 0)), std::move(entity));
      at = end + 1;
    }
    return made;
  }();
  return table;
}

const Entity* find_entity(const std::string& name) {
  const auto found = entities().find(name);
  return found == entities().end() ? nullptr : &found->second;
}

bool is_digit(char32_t c) {
  return c >= U'0' && c <= U'9';
}
bool is_hex(char32_t c) {
  return is_digit(c) || (c >= U'a' && c <= U'f') || (c >= U'A' && c <= U'F');
}
bool is_latin(char32_t c) {
  return (c >= U'a' && c <= U'z') || (c >= U'A' && c <= U'Z');
}

// Code points that text must not hold.
bool is_forbidden(char32_t c) {
  return (c >= 1 && c <= 8) || c == 0xB || (c >= 0xE && c <= 0x1F) || (c >= 0x7F && c <= 0x9F) ||
         (c >= 0xFDD0 && c <= 0xFDEF) || (c & 0xFFFE) == 0xFFFE;
}

std::u32string character(uint64_t number) {
  if (number >= 0x80 && number <= 0x9F) return {from_windows_1252(static_cast<unsigned char>(number))};
  if (number == 0 || (number >= 0xD800 && number <= 0xDFFF) || number > 0x10FFFF) return {char32_t{0xFFFD}};
  const auto point = static_cast<char32_t>(number);
  return is_forbidden(point) ? std::u32string() : std::u32string{point};
}

// A number at the front ("233;", "xE9"): how long it is, with its semicolon, and what it stands for.
size_t read_number(std::u32string_view rest, std::u32string& to) {
  const bool hex = !rest.empty() && (rest[0] == U'x' || rest[0] == U'X');
  size_t at = hex ? 1 : 0;
  const size_t first = at;
  uint64_t number = 0;
  for (; at < rest.size() && (hex ? is_hex(rest[at]) : is_digit(rest[at])); ++at) {
    const char32_t c = rest[at];
    const auto digit = static_cast<uint64_t>(is_digit(c) ? c - U'0' : (c | 0x20) - U'a' + 10);
    if (number <= 0x10FFFF) number = number * (hex ? 16 : 10) + digit;
  }
  if (at == first) return 0;
  to = character(number);
  return at < rest.size() && rest[at] == U';' ? at + 1 : at;
}

// A name at the front, or the longest name that it begins with: how long it is.
size_t read_name(std::u32string_view rest, std::u32string& to) {
  std::string name;
  while (name.size() < kLongestName && name.size() < rest.size()) {
    const char32_t c = rest[name.size()];
    if (c == U';' || !(is_latin(c) || is_digit(c))) break;
    name += static_cast<char>(c);
  }
  if (name.size() < rest.size() && rest[name.size()] == U';') {
    if (const Entity* whole = find_entity(name)) {
      to = whole->text;
      return name.size() + 1;
    }
  }
  for (; name.size() > 1; name.pop_back())
    if (const Entity* entity = find_entity(name); entity && !entity->needs_semicolon) {
      to = entity->text;
      return name.size();
    }
  return 0;
}

// Replaces what `read` knows after each "&".
template <class Read>
std::u32string replace_each(std::u32string_view text, Read read) {
  std::u32string result;
  for (size_t at = 0; at < text.size();) {
    std::u32string stands_for;
    const size_t length = text[at] == U'&' ? read(text.substr(at + 1), stands_for) : 0;
    if (length == 0) {
      result += text[at++];
    } else {
      result += stands_for;
      at += 1 + length;
    }
  }
  return result;
}

std::string in_small_letters(const std::string& name) {
  std::string small = name;
  for (char& c : small)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + ('a' - 'A'));
  return small;
}

}  // namespace

std::u32string unescape_html(std::u32string_view text) {
  return replace_each(text, [](std::u32string_view rest, std::u32string& to) {
    if (!rest.empty() && rest[0] == U'#') {
      const size_t length = read_number(rest.substr(1), to);
      return length == 0 ? 0 : length + 1;
    }
    return read_name(rest, to);
  });
}

std::u32string unescape_whole_entities(std::u32string_view text) {
  constexpr size_t kLongest = 24;
  return replace_each(text, [](std::u32string_view rest, std::u32string& to) -> size_t {
    const bool number = !rest.empty() && rest[0] == U'#';
    std::string name;
    for (size_t at = number ? 1 : 0; at < rest.size() && (is_latin(rest[at]) || is_digit(rest[at])); ++at)
      name += static_cast<char>(rest[at]);
    const size_t end = name.size() + (number ? 1 : 0);
    if (name.empty() || name.size() > kLongest || end >= rest.size() || rest[end] != U';') return 0;
    if (number) return read_number(rest.substr(1), to) == end ? end + 1 : 0;
    if (const Entity* entity = find_entity(name)) {
      to = entity->text;
      return end + 1;
    }
    const std::string small = in_small_letters(name);
    const Entity* entity = find_entity(small);
    // All in capitals, and only where browsers read nothing else into the beginning of it.
    std::u32string other;
    bool capitals = entity != nullptr;
    for (const char c : name) capitals = capitals && !(c >= 'a' && c <= 'z');
    if (!capitals || read_name(rest, other) > 0) return 0;
    to = upper(entity->text);
    return end + 1;
  });
}

}  // namespace melete

#include "data/base/text_repair.h"

#include <algorithm>
#include <array>
#include <unordered_map>

#include "data/base/html_entities.h"
#include "data/base/unicode.h"

namespace melete {

namespace {

// The byte that Windows-1252 (or Latin-1) shows as this character; -1: none.
int byte_of(char32_t point) {
  static const auto table = [] {
    std::unordered_map<char32_t, int> made;
    for (int byte = 0x80; byte < 0xA0; ++byte)
      made[from_windows_1252(static_cast<unsigned char>(byte))] = byte;
    return made;
  }();
  if (point < 0x100) return static_cast<int>(point);
  const auto found = table.find(point);
  return found == table.end() ? -1 : found->second;
}

// One character that was UTF-8 and is shown as two to four, at place i. A byte that was lost on the way
// (U+FFFD) makes it U+FFFD.
struct Misread {
  size_t length = 0;  // 0: none is here
  char32_t meant = 0;
};

// How many bytes of UTF-8 begin with this one; 0: none.
size_t length_after(int lead) {
  return lead >= 0xC2 && lead < 0xE0   ? 2
         : lead >= 0xE0 && lead < 0xF0 ? 3
         : lead >= 0xF0 && lead < 0xF5 ? 4
                                       : 0;
}

Misread misread_at(std::u32string_view text, size_t i) {
  const int lead = byte_of(text[i]);
  const size_t length = length_after(lead);
  if (length == 0 || i + length > text.size()) return {};
  std::string bytes(1, static_cast<char>(lead));
  bool lost = false;
  for (size_t k = 1; k < length; ++k) {
    const int byte = text[i + k] == kBroken ? 0x80 : byte_of(text[i + k]);
    if (byte < 0x80 || byte >= 0xC0) return {};
    lost = lost || text[i + k] == kBroken;
    bytes += static_cast<char>(byte);
  }
  char32_t meant = kBroken;
  if (!lost && read_utf8(bytes, meant) != length) return {};
  return {length, lost ? kBroken : meant};
}

// Where the second half of two was a hard space (byte A0) that became a plain one: "voilÃ le", "Å KODA".
Misread misread_with_space_at(std::u32string_view text, size_t i) {
  static constexpr std::u32string_view kLeads = U"\u00C2\u00C3\u00C5\u00CE\u00D0\u00D9";
  if (kLeads.find(text[i]) == std::u32string_view::npos || i + 1 >= text.size() || text[i + 1] != U' ')
    return {};
  const auto meant = static_cast<char32_t>((text[i] & 0x1F) << 6 | 0x20);
  constexpr char32_t kAGrave = 0xE0;
  if (meant != kAGrave) return {2, meant};
  // The French word had a space of its own behind it; Portuguese ones go on.
  const std::u32string_view rest = text.substr(i + 2);
  for (const std::u32string_view more : {U" ", U"quele", U"quela", U"quilo", U"s "})
    if (rest.starts_with(more)) return {2, meant};
  return {1, meant};
}

// The same of three or four, one of which became a plain space: "â€ " reads as a dagger, whether it was one
// or the closing quote that lost its last byte.
Misread longer_with_space_at(std::u32string_view text, size_t i) {
  const int lead = byte_of(text[i]);
  const size_t length = lead > 0xE3 && lead != 0xF0 ? 0 : length_after(lead);
  if (length < 3 || i + length > text.size()) return {};
  std::string bytes(1, static_cast<char>(lead));
  size_t spaces = 0;
  for (size_t k = 1; k < length; ++k) {
    const bool space = text[i + k] == U' ';
    const int byte = space ? 0xA0 : byte_of(text[i + k]);
    if (byte < 0x80 || byte >= 0xC0) return {};
    // A hard space or a line break beside the lost one is no letter's half.
    if (length == 3 && !space && (byte == 0x85 || byte == 0xA0)) return {};
    if (length == 3 && space && k == 1 && lead < 0xE2) return {};
    spaces += space ? 1 : 0;
    bytes += static_cast<char>(byte);
  }
  char32_t meant = 0;
  if (spaces != 1 || read_utf8(bytes, meant) != length) return {};
  return {length, meant};
}

// "â€?": a question mark stands for the byte that was lost.
Misread misread_with_question_at(std::u32string_view text, size_t i) {
  const int lead = byte_of(text[i]);
  const size_t length = length_after(lead);
  if (length == 0 || i + length > text.size() || (length == 2 && lead > 0xC3)) return {};
  size_t questions = 0;
  for (size_t k = 1; k < length; ++k) {
    const int byte = text[i + k] == U'?' || text[i + k] == kBroken ? 0x80 : byte_of(text[i + k]);
    if (byte < 0x80 || byte >= 0xC0) return {};
    questions += text[i + k] == U'?' ? 1 : 0;
  }
  if (questions != 1) return {};
  return {length, kBroken};
}

bool is_one_of(char32_t c, std::u32string_view marks) {
  return marks.find(c) != std::u32string_view::npos;
}

// What people put after a letter with an accent: quotes, dashes, dots, trade marks; prices after capitals.
constexpr std::u32string_view kPrices = U"\u00A2\u00A3\u00A5\u20AC";
constexpr std::u32string_view kUsual =
    U"\u00A0\u00AD\u00B7\u00B4\u2013\u2014\u2026\u2018\u2019\u201C\u201D\u201A\u201E\u2022\u2039\u203A\u00AB"
    U"\u00BB\u00AE"
    U"\u2122\u00A9\u00B0\u00A1\u00BF";

// Whether nobody would write these characters in a row.
bool looks_misread(std::u32string_view text, size_t i, const Misread& here) {
  bool usual = true;
  for (size_t k = 1; k < here.length; ++k)
    usual = usual && (text[i + k] == U' ' || is_one_of(text[i + k], kUsual) ||
                      (here.length == 2 && is_one_of(text[i + k], kPrices)));
  if (!usual || here.length > 3) return true;
  // Letters that are little else than the first half of something; but an apostrophe or dots may follow any.
  return is_one_of(text[i], U"\u00C2\u00C3\u00CE\u00D0") && !is_one_of(text[i + 1], U"\u2019\u2026");
}

bool is_small(char32_t c) {
  return c >= U'a' && c <= U'z';
}

// "voilÃ le": a capital behind small letters, and then nothing.
bool looks_cut(std::u32string_view text, size_t i) {
  if (!is_one_of(text[i], U"\u00C2\u00C3") || i + 1 >= text.size() || text[i + 1] != U' ') return false;
  if (i == 0) return true;
  return is_small(text[i - 1]) || (i > 1 && is_space(text[i - 1]) && is_small(text[i - 2]));
}

// Everything that can be read as UTF-8 is, if all of the text can; else nothing.
std::u32string repair_whole(std::u32string_view text) {
  std::u32string result;
  for (size_t i = 0; i < text.size();) {
    Misread here = misread_at(text, i);
    for (const auto& damaged : {misread_with_space_at, longer_with_space_at, misread_with_question_at})
      if (here.length == 0) here = damaged(text, i);
    if (here.length == 0 && text[i] >= 0x80) return {};
    result += here.length > 0 ? here.meant : text[i];
    i += std::max<size_t>(here.length, 1);
  }
  return result;
}

Misread misread_or_spaced_at(std::u32string_view text, size_t i) {
  const Misread here = misread_at(text, i);
  return here.length > 0 ? here : longer_with_space_at(text, i);
}

// Stretches of misread characters, those where one looks so.
std::u32string repair_stretches(std::u32string_view text) {
  std::u32string result;
  for (size_t i = 0; i < text.size();) {
    size_t end = i;
    bool suspicious = false;
    std::u32string meant;
    for (Misread next; end < text.size() && (next = misread_or_spaced_at(text, end)).length > 0;
         end += next.length) {
      suspicious = suspicious || looks_misread(text, end, next);
      meant += next.meant;
    }
    if (suspicious) {
      result += meant;
      i = end;
    } else if (looks_cut(text, i) && misread_with_space_at(text, i).length > 0) {
      const Misread cut = misread_with_space_at(text, i);
      result += cut.meant;
      i += cut.length;
    } else {
      result += text[i++];
    }
  }
  return result;
}

std::u32string repair_once(std::u32string_view text) {
  bool suspicious = false;
  for (size_t i = 0; i < text.size() && !suspicious; ++i) {
    const Misread here = misread_or_spaced_at(text, i);
    suspicious = (here.length > 0 && looks_misread(text, i, here)) || looks_cut(text, i);
  }
  if (!suspicious) return std::u32string(text);
  std::u32string whole = repair_whole(text);
  return whole.empty() ? repair_stretches(text) : whole;
}

std::u32string windows_controls(std::u32string_view text) {
  std::u32string result(text);
  for (char32_t& c : result)
    if (c >= 0x80 && c < 0xA0) c = from_windows_1252(static_cast<unsigned char>(c));
  return result;
}

std::u32string split_ligatures(std::u32string_view text) {
  static const std::unordered_map<char32_t, std::u32string_view> table = {
      {0x132, U"IJ"},       {0x133, U"ij"},      {0x149, U"\u02BCn"}, {0x1F1, U"DZ"},      {0x1F2, U"Dz"},
      {0x1F3, U"dz"},       {0x1C4, U"D\u017D"}, {0x1C5, U"D\u017E"}, {0x1C6, U"d\u017E"}, {0x1C7, U"LJ"},
      {0x1C8, U"Lj"},       {0x1C9, U"lj"},      {0x1CA, U"NJ"},      {0x1CB, U"Nj"},      {0x1CC, U"nj"},
      {0xFB00, U"ff"},      {0xFB01, U"fi"},     {0xFB02, U"fl"},     {0xFB03, U"ffi"},    {0xFB04, U"ffl"},
      {0xFB05, U"\u017Ft"}, {0xFB06, U"st"}};
  std::u32string result;
  for (const char32_t c : text) {
    const auto found = table.find(c);
    if (found == table.end())
      result += c;
    else
      result += found->second;
  }
  return result;
}

std::u32string straight_quotes(std::u32string_view text) {
  std::u32string result(text);
  for (char32_t& c : result) {
    if (c >= 0x201C && c <= 0x201F) c = U'"';
    if (c == 0x2BC || (c >= 0x2018 && c <= 0x201B)) c = U'\'';
  }
  return result;
}

std::u32string plain_line_breaks(std::u32string_view text) {
  std::u32string result;
  for (size_t i = 0; i < text.size(); ++i) {
    const char32_t c = text[i];
    if (c == U'\r' && i + 1 < text.size() && text[i + 1] == U'\n') continue;
    result += c == U'\r' || c == 0x2028 || c == 0x2029 || c == 0x85 ? U'\n' : c;
  }
  return result;
}

// "\033[1;32m"
std::u32string without_terminal_colours(std::u32string_view text) {
  std::u32string result;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == 0x1B && i + 1 < text.size() && text[i + 1] == U'[') {
      size_t end = i + 2;
      while (end < text.size() && ((text[end] >= U'0' && text[end] <= U'9') || text[end] == U';')) ++end;
      const char32_t last = end < text.size() ? text[end] | 0x20 : 0;
      if (last >= U'a' && last <= U'z') {
        i = end;
        continue;
      }
    }
    result += text[i];
  }
  return result;
}

std::u32string without_control_characters(std::u32string_view text) {
  std::u32string result;
  for (const char32_t c : text) {
    const bool control = c < 9 || c == 0xB || (c >= 0xE && c < 0x20) || c == 0x7F ||
                         (c >= 0x206A && c <= 0x206F) || c == 0xFEFF || (c >= 0xFFF9 && c <= 0xFFFC);
    if (!control) result += c;
  }
  return result;
}

std::u32string repair_line(std::u32string line, bool entities) {
  for (;;) {
    std::u32string next = entities ? unescape_whole_entities(line) : line;
    next = windows_controls(repair_encoding(next));
    next = straight_quotes(ordinary_width(split_ligatures(next)));
    next = without_control_characters(without_terminal_colours(plain_line_breaks(next)));
    next = compose(next);
    if (next == line) return line;
    line = std::move(next);
  }
}

}  // namespace

std::u32string repair_encoding(std::u32string_view text) {
  std::u32string now(text);
  for (;;) {
    std::u32string next = repair_once(now);
    if (next == now) return now;
    now = std::move(next);
  }
}

std::u32string repair_text(std::u32string_view text) {
  std::u32string result;
  bool entities = true;
  while (!text.empty()) {
    const size_t end = std::min(text.find(U'\n'), text.size() - 1) + 1;
    const std::u32string line(text.substr(0, end));
    if (line.find(U'<') != std::u32string::npos) entities = false;
    result += repair_line(line, entities);
    text.remove_prefix(end);
  }
  return result;
}

}  // namespace melete

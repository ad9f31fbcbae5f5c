#include "data/base/unicode.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <map>
#include <unordered_map>
#include <utility>

namespace melete {

namespace {

struct CodePointRange {
  char32_t first, last;
};
struct CaseRun {
  char32_t first, last, step;
  int32_t difference;
};
struct ClassRun {
  char32_t first, last;
  int32_t combining_class;
};
struct Composition {
  char32_t whole, first, second;
};

#include "data/base/unicode_tables.inc"

// The run that holds a code point, or null. Runs are in order.
template <class Run, size_t N>
const Run* find_run(const Run (&runs)[N], char32_t point) {
  const Run* after = std::upper_bound(std::begin(runs), std::end(runs), point,
                                      [](char32_t p, const Run& run) { return p < run.first; });
  if (after == std::begin(runs)) return nullptr;
  return point <= (after - 1)->last ? after - 1 : nullptr;
}

int32_t combining_class(char32_t point) {
  const ClassRun* run = find_run(kClasses, point);
  return run ? run->combining_class : 0;
}

// Korean syllables are composed by arithmetic.
constexpr char32_t kSyllables = 0xAC00, kLeads = 0x1100, kVowels = 0x1161, kTails = 0x11A7;
constexpr char32_t kLeadCount = 19, kVowelCount = 21, kTailCount = 28;

const std::unordered_map<char32_t, std::pair<char32_t, char32_t>>& decompositions() {
  static const auto table = [] {
    std::unordered_map<char32_t, std::pair<char32_t, char32_t>> made;
    for (const Composition& c : kCompositions) made[c.whole] = {c.first, c.second};
    for (const Composition& c : kDecompositions) made[c.whole] = {c.first, c.second};
    return made;
  }();
  return table;
}

const std::map<std::pair<char32_t, char32_t>, char32_t>& compositions() {
  static const auto table = [] {
    std::map<std::pair<char32_t, char32_t>, char32_t> made;
    for (const Composition& c : kCompositions) made[{c.first, c.second}] = c.whole;
    return made;
  }();
  return table;
}

void decompose(char32_t point, std::u32string& to) {
  if (point >= kSyllables && point < kSyllables + kLeadCount * kVowelCount * kTailCount) {
    const char32_t index = point - kSyllables, tail = index % kTailCount;
    to += kLeads + index / kTailCount / kVowelCount;
    to += kVowels + index / kTailCount % kVowelCount;
    if (tail > 0) to += kTails + tail;
    return;
  }
  const auto found = decompositions().find(point);
  if (found == decompositions().end()) {
    to += point;
    return;
  }
  decompose(found->second.first, to);
  if (found->second.second != 0) decompose(found->second.second, to);
}

// 0: they do not compose.
char32_t composed(char32_t first, char32_t second) {
  if (first >= kLeads && first < kLeads + kLeadCount && second >= kVowels && second < kVowels + kVowelCount)
    return kSyllables + ((first - kLeads) * kVowelCount + (second - kVowels)) * kTailCount;
  if (first >= kSyllables && first < kSyllables + kLeadCount * kVowelCount * kTailCount &&
      (first - kSyllables) % kTailCount == 0 && second > kTails && second < kTails + kTailCount)
    return first + (second - kTails);
  const auto found = compositions().find({first, second});
  return found == compositions().end() ? 0 : found->second;
}

// Marks that follow a character stand in the order of their classes.
void order_marks(std::u32string& text) {
  for (size_t begin = 0; begin < text.size();) {
    size_t end = begin;
    while (end < text.size() && combining_class(text[end]) != 0) ++end;
    std::stable_sort(text.begin() + static_cast<int64_t>(begin), text.begin() + static_cast<int64_t>(end),
                     [](char32_t a, char32_t b) { return combining_class(a) < combining_class(b); });
    begin = end + 1;
  }
}

// Whether a letter stands on that side of place i, past marks and what joins words.
bool letter_beside(std::u32string_view text, size_t i, bool before) {
  for (;;) {
    if (before ? i == 0 : i + 1 >= text.size()) return false;
    i += before ? size_t(-1) : size_t(1);
    const char32_t c = text[i];
    const bool skipped = c == U'\'' || c == U'.' || c == U':' || c == 0xB7 || c == 0x2019 || c == 0xAD ||
                         combining_class(c) != 0;
    if (!skipped) return is_letter(c);
  }
}

}  // namespace

size_t read_utf8(std::string_view bytes, char32_t& point) {
  if (bytes.empty()) return 0;
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const char32_t lead = byte(0);
  if (lead < 0x80) {
    point = lead;
    return 1;
  }
  const size_t length = lead >= 0xC2 && lead < 0xE0   ? 2
                        : lead >= 0xE0 && lead < 0xF0 ? 3
                        : lead >= 0xF0 && lead < 0xF5 ? 4
                                                      : 0;
  if (length == 0 || bytes.size() < length) return 0;
  char32_t value = lead & (0xFF >> (length + 1));
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
    value = value << 6 | (byte(i) & 0x3F);
  }
  const char32_t least = length == 2 ? 0x80 : length == 3 ? 0x800 : 0x10000;
  if (value < least || value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) return 0;
  point = value;
  return length;
}

std::u32string code_points(std::string_view bytes) {
  std::u32string text;
  while (!bytes.empty()) {
    char32_t point = kBroken;
    bytes.remove_prefix(std::max<size_t>(1, read_utf8(bytes, point)));
    text += point;
  }
  return text;
}

void append_utf8(std::string& text, char32_t c) {
  const auto add = [&](char32_t byte) { text += static_cast<char>(byte); };
  if (c < 0x80) {
    add(c);
  } else if (c < 0x800) {
    add(0xC0 | c >> 6);
    add(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    add(0xE0 | c >> 12);
    add(0x80 | (c >> 6 & 0x3F));
    add(0x80 | (c & 0x3F));
  } else {
    add(0xF0 | c >> 18);
    add(0x80 | (c >> 12 & 0x3F));
    add(0x80 | (c >> 6 & 0x3F));
    add(0x80 | (c & 0x3F));
  }
}

std::string utf8(std::u32string_view text) {
  std::string bytes;
  for (const char32_t point : text) append_utf8(bytes, point);
  return bytes;
}

bool is_letter(char32_t point) {
  return find_run(kLetters, point) != nullptr;
}

bool is_number(char32_t point) {
  return find_run(kNumbers, point) != nullptr;
}

bool is_space(char32_t c) {
  return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

std::u32string lower(std::u32string_view text) {
  constexpr char32_t kCapitalSigma = 0x3A3, kFinalSigma = 0x3C2, kDottedCapitalI = 0x130, kDotAbove = 0x307;
  std::u32string result;
  for (size_t i = 0; i < text.size(); ++i) {
    const char32_t c = text[i];
    if (c == kCapitalSigma && letter_beside(text, i, true) && !letter_beside(text, i, false)) {
      result += kFinalSigma;
    } else if (c == kDottedCapitalI) {
      result += U'i';
      result += kDotAbove;
    } else {
      const CaseRun* run = find_run(kCapitals, c);
      const bool capital = run && (c - run->first) % run->step == 0;
      result += capital ? static_cast<char32_t>(static_cast<int32_t>(c) + run->difference) : c;
    }
  }
  return result;
}

std::u32string upper(std::u32string_view text) {
  constexpr char32_t kSharpS = 0xDF;
  static const auto capitals = [] {
    std::unordered_map<char32_t, char32_t> made;
    for (const CaseRun& run : kCapitals)
      for (char32_t c = run.first; c <= run.last; c += run.step)
        made.emplace(static_cast<char32_t>(static_cast<int32_t>(c) + run.difference), c);
    return made;
  }();
  std::u32string result;
  for (const char32_t c : text) {
    const auto found = capitals.find(c);
    if (c == kSharpS)
      result += U"SS";
    else
      result += found == capitals.end() ? c : found->second;
  }
  return result;
}

std::u32string compose(std::u32string_view text) {
  std::u32string apart;
  for (const char32_t point : text) decompose(point, apart);
  order_marks(apart);
  std::u32string result;
  size_t base = std::u32string::npos;  // the last character that marks can join
  int32_t last_class = 0;              // of what stands between it and here
  for (const char32_t point : apart) {
    const int32_t own_class = combining_class(point);
    if (base != std::u32string::npos) {
      // Only what no other mark of the same or a higher class blocks.
      const bool next = base + 1 == result.size();
      if (next || last_class < own_class) {
        if (const char32_t whole = composed(result[base], point); whole != 0) {
          result[base] = whole;
          continue;
        }
      }
    }
    result += point;
    last_class = own_class;
    if (own_class == 0) base = result.size() - 1;
  }
  return result;
}

char32_t from_windows_1252(unsigned char byte) {
  static constexpr std::array<uint16_t, 32> kHigh = {
      0x20AC, 0x81,   0x201A, 0x192,  0x201E, 0x2026, 0x2020, 0x2021, 0x2C6,  0x2030, 0x160,
      0x2039, 0x152,  0x8D,   0x17D,  0x8F,   0x90,   0x2018, 0x2019, 0x201C, 0x201D, 0x2022,
      0x2013, 0x2014, 0x2DC,  0x2122, 0x161,  0x203A, 0x153,  0x9D,   0x17E,  0x178};
  return byte >= 0x80 && byte < 0xA0 ? kHigh[byte - 0x80] : byte;
}

std::u32string ordinary_width(std::u32string_view text) {
  constexpr char32_t kWideSpace = 0x3000, kFirst = 0xFF01, kWideMacron = 0xFFE3;
  std::u32string result;
  for (const char32_t c : text) {
    if (c == kWideSpace) {
      result += U' ';
    } else if (c == kWideMacron) {  // the one that stands for two
      result += U" \u0304";
    } else if (c >= kFirst && c < kFirst + std::size(kWidths) && kWidths[c - kFirst] != 0) {
      result += kWidths[c - kFirst];
    } else {
      result += c;
    }
  }
  return result;
}

}  // namespace melete

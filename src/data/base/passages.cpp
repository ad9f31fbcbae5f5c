#include "data/base/passages.h"

#include <algorithm>

#include "data/base/unicode.h"

namespace melete {

namespace {

constexpr double kParagraphPause = 0.7, kSentencePause = 0.35, kClausePause = 0.15;

bool one_of(char32_t point, std::u32string_view points) {
  return points.find(point) != std::u32string_view::npos;
}

// Scripts that are written without spaces need none after their marks.
bool ends_sentence(char32_t point) {
  return one_of(point, U".!?\u2026\u3002\uff01\uff1f\u0964\u061f");
}
bool needs_space(char32_t point) {
  return one_of(point, U".!?\u2026\u0964\u061f");
}
bool closes(char32_t point) {
  return one_of(point, U"\"')]\u201d\u2019\u00bb\u300d");
}
bool ends_clause(char32_t point) {
  return one_of(point, U",;:\u2014\u3001\uff0c\uff1b");
}

std::u32string trimmed(std::u32string_view text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return std::u32string(text);
}

class Cutter {
 public:
  explicit Cutter(size_t longest) : longest_(longest) {}

  void sentence(std::u32string_view text, double pause) {
    std::u32string rest = trimmed(text);
    while (rest.size() > longest_) {
      const size_t cut = place_to_cut(rest);
      add(rest.substr(0, cut), kClausePause);
      rest = trimmed(std::u32string_view(rest).substr(cut));
    }
    add(rest, pause);
  }
  // A longer pause after what is there.
  void paragraph() {
    if (!result.empty()) result.back().pause_seconds = kParagraphPause;
  }

  std::vector<Passage> result;

 private:
  void add(std::u32string_view text, double pause) {
    if (const std::u32string plain = trimmed(text); !plain.empty()) result.push_back({utf8(plain), pause});
  }

  // After the last clause that fits, else the last word, else anywhere.
  size_t place_to_cut(const std::u32string& text) const {
    for (size_t i = longest_; i > longest_ / 3; --i)
      if (ends_clause(text[i - 1]) && (i == text.size() || is_space(text[i]) || text[i - 1] > 0x3000))
        return i;
    for (size_t i = longest_; i > longest_ / 3; --i)
      if (is_space(text[i])) return i;
    return longest_;
  }

  size_t longest_;
};

}  // namespace

std::vector<Passage> passages(std::string_view bytes, size_t longest) {
  const std::u32string text = code_points(bytes);
  Cutter cutter(std::max<size_t>(longest, 1));
  size_t from = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == U'\n' && i + 1 < text.size() && text[i + 1] == U'\n') {
      cutter.sentence(std::u32string_view(text).substr(from, i - from), kSentencePause);
      cutter.paragraph();
      from = i + 1;
      continue;
    }
    if (!ends_sentence(text[i])) continue;
    size_t end = i + 1;
    while (end < text.size() && (ends_sentence(text[end]) || closes(text[end]))) ++end;
    if (needs_space(text[end - 1]) || closes(text[end - 1]))
      if (end < text.size() && !is_space(text[end])) continue;  // 3.5, example.com
    cutter.sentence(std::u32string_view(text).substr(from, end - from), kSentencePause);
    from = end;
    i = end - 1;
  }
  cutter.sentence(std::u32string_view(text).substr(from), kSentencePause);
  if (!cutter.result.empty()) cutter.result.back().pause_seconds = 0;
  return std::move(cutter.result);
}

}  // namespace melete

#include "config/wrap.h"

namespace melete {

std::string wrap_text(const std::string& text, size_t indent, size_t width) {
  std::string out, word;
  size_t column = indent;
  const auto flush = [&] {
    if (word.empty()) return;
    if (column > indent && column + 1 + word.size() > width) {
      out += "\n" + std::string(indent, ' ');
      column = indent;
    } else if (column > indent) {
      out += ' ';
      ++column;
    }
    out += word;
    column += word.size();
    word.clear();
  };
  for (const char c : text) {
    if (c == ' ')
      flush();
    else
      word += c;
  }
  flush();
  return out;
}

std::string shortened(std::string text, size_t limit) {
  if (text.size() <= limit) return text;
  text.resize(limit - 3);
  text.append("...");
  return text;
}

}  // namespace melete

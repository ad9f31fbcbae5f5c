#include "systems/spear_tts/reading.h"

#include <algorithm>
#include <sstream>

namespace melete::spear_tts {

namespace {

template <class Unit>
ReadingErrors errors_between(const std::vector<Unit>& read, const std::vector<Unit>& truth) {
  // One row of the table of edit distances at a time.
  std::vector<int64_t> row(truth.size() + 1);
  for (size_t j = 0; j <= truth.size(); ++j) row[j] = static_cast<int64_t>(j);
  for (size_t i = 1; i <= read.size(); ++i) {
    int64_t before = row[0];  // of the row above, one to the left
    row[0] = static_cast<int64_t>(i);
    for (size_t j = 1; j <= truth.size(); ++j) {
      const int64_t replaced = before + (read[i - 1] == truth[j - 1] ? 0 : 1);
      before = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return {row.back(), static_cast<int64_t>(truth.size())};
}

std::vector<std::string> words(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> result;
  for (std::string word; in >> word;) result.push_back(word);
  return result;
}

}  // namespace

std::vector<std::string> characters(const std::string& text) {
  std::vector<std::string> result;
  for (const char byte : text) {
    const bool continues = (static_cast<unsigned char>(byte) & 0xC0) == 0x80;
    if (continues && !result.empty())
      result.back() += byte;
    else
      result.emplace_back(1, byte);
  }
  return result;
}

ReadingErrors& ReadingErrors::operator+=(const ReadingErrors& more) {
  errors += more.errors;
  of += more.of;
  return *this;
}

ReadingErrors character_errors(const std::string& read, const std::string& truth) {
  return errors_between(characters(read), characters(truth));
}

ReadingErrors word_errors(const std::string& read, const std::string& truth) {
  return errors_between(words(read), words(truth));
}

}  // namespace melete::spear_tts

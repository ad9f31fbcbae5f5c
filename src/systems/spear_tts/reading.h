// How far what was read is from what is written.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace melete::spear_tts {

struct ReadingErrors {
  int64_t errors = 0, of = 0;  // insertions, deletions and replacements; characters or words of the truth

  double share() const { return of > 0 ? static_cast<double>(errors) / static_cast<double>(of) : 0; }
  ReadingErrors& operator+=(const ReadingErrors& more);
};

std::vector<std::string> characters(const std::string& text);  // of UTF-8

ReadingErrors character_errors(const std::string& read, const std::string& truth);  // of UTF-8 characters
ReadingErrors word_errors(const std::string& read, const std::string& truth);       // between white space

}  // namespace melete::spear_tts

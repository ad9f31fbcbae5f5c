// A long text in parts that can be said in one breath, with the pause after each.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace melete {

struct Passage {
  std::string text;          // UTF-8, its marks kept, without white space around it
  double pause_seconds = 0;  // after it; 0 after the last
};

// At the ends of sentences (of any script) and paragraphs; a sentence of more than `longest` characters also
// at commas and the like, or else between words.
std::vector<Passage> passages(std::string_view text, size_t longest = 300);

}  // namespace melete

// Text in columns, for help and tables.
#pragma once

#include <cstddef>
#include <string>

namespace melete {

// Words broken into lines that end before column `width`; every line but the first starts after `indent`
// spaces. The first line is taken to start at that column too.
std::string wrap_text(const std::string& text, size_t indent, size_t width);

// At most `limit` bytes of what a person wrote, for messages that quote it.
std::string shortened(std::string text, size_t limit = 80);

}  // namespace melete

// A file of sentences, one a line.
#pragma once

#include <string>
#include <vector>

namespace melete {

// Its lines that are not blank. An Error where there is none.
std::vector<std::string> text_lines(const std::string& path);

}  // namespace melete

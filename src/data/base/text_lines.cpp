#include "data/base/text_lines.h"

#include <fstream>

#include "core/base/error.h"

namespace melete {

std::vector<std::string> text_lines(const std::string& path) {
  std::ifstream in(path);
  require(in.good(), "[text] cannot read {}", path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);)
    if (line.find_first_not_of(" \t\r") != std::string::npos) lines.push_back(line);
  require(!lines.empty(), "[text] there is no text in {}", path);
  return lines;
}

}  // namespace melete

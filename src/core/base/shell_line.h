// Words of a command as one line that a shell reads back as the same words.
#pragma once

#include <string>
#include <vector>

namespace melete {

std::string shell_line(const std::vector<std::string>& words);

}  // namespace melete

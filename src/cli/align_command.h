// `melete data align`.
#pragma once

#include <string>
#include <vector>

namespace melete {

int align_command(const std::vector<std::string>& args);

}  // namespace melete

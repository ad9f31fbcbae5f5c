// `melete voice`: voices kept under a name.
#pragma once

#include <string>
#include <vector>

namespace melete {

int voice_command(const std::vector<std::string>& args);

}  // namespace melete

// `melete generate`: from weights to sound.
#pragma once

#include <string>
#include <vector>

namespace melete {

int generate_command(const std::vector<std::string>& args);

}  // namespace melete

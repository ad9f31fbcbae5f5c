// `melete recipe`: what recipes give.
#pragma once

#include <string>
#include <vector>

namespace melete {

int recipe_command(const std::vector<std::string>& args);

}  // namespace melete

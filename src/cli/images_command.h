// melete images encode, decode and eval.
#pragma once

#include <string>
#include <vector>

namespace melete {

int images_command(const std::vector<std::string>& args);

}  // namespace melete

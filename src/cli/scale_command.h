// `melete bench scale`: how well continuations stay in the scale of their prompts.
#pragma once

#include <string>
#include <vector>

namespace melete {

int scale_command(const std::vector<std::string>& args);

}  // namespace melete

// melete bench --plan: what training on many accelerators would ask for.
#pragma once

#include <string>
#include <vector>

namespace melete {

int plan_command(const std::vector<std::string>& args);

}  // namespace melete

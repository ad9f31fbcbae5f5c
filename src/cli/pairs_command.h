// `melete data back-translate` and `melete data pairs`.
#pragma once

#include <string>
#include <vector>

namespace melete {

int back_translate_command(const std::vector<std::string>& args);
int pairs_command(const std::vector<std::string>& args);

}  // namespace melete

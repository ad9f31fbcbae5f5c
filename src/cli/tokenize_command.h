// `melete data tokenize`: tokens of all recordings, once, for the stages to train on.
#pragma once

#include <string>
#include <vector>

namespace melete {

int tokenize_command(const std::vector<std::string>& args);

}  // namespace melete

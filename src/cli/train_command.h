// melete train <what>: from recordings to a run folder.
#pragma once

#include <string>
#include <vector>

namespace melete {

int train_command(const std::vector<std::string>& args);

}  // namespace melete

// `melete data index | check | stats | synth`.
#pragma once

#include <string>
#include <vector>

namespace melete {

// `args` are the words after "data". Returns 0, or 1 when `check` found problems; throws UsageError for wrong
// words and Error for what failed, which the program turns into exit codes 2 and 1.
int data_command(const std::vector<std::string>& args);

}  // namespace melete

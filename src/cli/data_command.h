// `melete data index | check | stats | synth`.
#pragma once

#include <string>
#include <vector>

namespace melete {

// `args` are the words after "data". Returns the exit code: 0 done, 1 failed (for `check`: problems were
// found), 2 wrong usage.
int data_command(const std::vector<std::string>& args);

}  // namespace melete

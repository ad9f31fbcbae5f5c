// `melete doctor`: what the engine is, what it gets wrong here, and which optional programs are installed.
#pragma once

#include <string>
#include <vector>

namespace melete {

// Returns the exit code: 0, or 1 when something is broken that melete does not work around.
int doctor_command(const std::vector<std::string>& args);

}  // namespace melete

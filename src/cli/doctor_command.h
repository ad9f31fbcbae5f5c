// `melete doctor`: what the engine is, what it gets wrong here, and which optional programs are installed.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/engine.h"
#include "kernels/vector_level.h"

namespace melete {

// Returns the exit code: 0, or 1 when something is broken that melete does not work around.
int doctor_command(const std::vector<std::string>& args);

// Vector instructions by name, each with who uses it here, or why nobody does.
std::vector<std::pair<std::string, std::string>> instruction_use(const EngineInfo& info, VectorLevel level);

}  // namespace melete

// Programs beside melete that it can use where they are installed.
#pragma once

#include <string>

namespace melete {

// The program on PATH; empty where there is none. An empty entry of PATH, the current folder, is passed over:
// it may hold anything.
std::string find_program(const std::string& name);

}  // namespace melete

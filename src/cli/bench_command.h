// melete bench <what>: step times, parts and % of this machine's peak.
#pragma once

#include <string>
#include <vector>

namespace melete {

int bench_command(const std::vector<std::string>& args);

}  // namespace melete

// melete inspect, import and export.
#pragma once

#include <string>
#include <vector>

namespace melete {

int inspect_command(const std::vector<std::string>& args);
int import_command(const std::vector<std::string>& args);
int export_command(const std::vector<std::string>& args);

}  // namespace melete

// `melete studio`: the page over a folder of runs; `melete studio export`: the same as one file.
#pragma once

#include <string>
#include <vector>

namespace melete {

int studio_command(const std::vector<std::string>& args);
int studio_work_command(const std::vector<std::string>& args);  // the process that its jobs run in

// Lines that make something with that run, as far as its task is enough to say them.
std::vector<std::string> commands_with(const std::string& run);

}  // namespace melete

// melete codec eval: how close a trained codec comes to recordings it has not seen.
#pragma once

#include <string>
#include <vector>

namespace melete {

int codec_command(const std::vector<std::string>& args);

}  // namespace melete

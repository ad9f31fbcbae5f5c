#pragma once

#include <string>
#include <vector>

namespace melete {

int kmeans_command(const std::vector<std::string>& args);  // `melete train kmeans ...`, the words after it

}  // namespace melete

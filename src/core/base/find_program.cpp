#include "core/base/find_program.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <sstream>

namespace melete {

std::string find_program(const std::string& name) {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path ? path : "");
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string file = folder + "/" + name;
    std::error_code ignored;
    if (!folder.empty() && std::filesystem::is_regular_file(file, ignored) &&
        ::access(file.c_str(), X_OK) == 0)
      return file;
  }
  return {};
}

}  // namespace melete

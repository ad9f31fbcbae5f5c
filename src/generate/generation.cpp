#include "generate/generation.h"

#include <fmt/format.h>

#include <filesystem>

namespace melete {

std::string numbered_path(const std::string& out, int64_t number, int64_t count) {
  if (count == 1) return out;
  const std::filesystem::path path(out);
  return (path.parent_path() /
          fmt::format("{}_{}{}", path.stem().string(), number, path.extension().string()))
      .string();
}

}  // namespace melete

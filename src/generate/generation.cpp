#include "generate/generation.h"

#include <fmt/format.h>

#include <filesystem>

#include "io/base/atomic_file.h"

namespace melete {

std::string numbered_path(const std::string& out, int64_t number, int64_t count) {
  if (count == 1) return out;
  const std::filesystem::path path(out);
  return (path.parent_path() /
          fmt::format("{}_{}{}", path.stem().string(), number, path.extension().string()))
      .string();
}

void write_text_beside(const std::string& path, const std::string& text) {
  write_file_atomically(std::filesystem::path(path).replace_extension(".txt").string(), text + "\n");
}

}  // namespace melete

#include "studio/safe_path.h"

#include <algorithm>

namespace melete {

namespace fs = std::filesystem;

bool is_inside(const fs::path& root, const fs::path& real_path) {
  const auto [end, rest] = std::mismatch(root.begin(), root.end(), real_path.begin(), real_path.end());
  return end == root.end();
}

std::optional<fs::path> path_inside(const fs::path& root, const std::string& relative) {
  if (relative.empty() || relative.size() > 4096 || relative.find('\0') != std::string::npos)
    return std::nullopt;
  const fs::path asked(relative);
  if (asked.is_absolute()) return std::nullopt;
  if (relative != ".")
    for (const fs::path& part : asked)
      if (part.empty() || part.string().starts_with('.')) return std::nullopt;
  std::error_code error;
  const fs::path real = fs::canonical(root / asked, error);
  if (error || !is_inside(root, real)) return std::nullopt;
  return real;
}

}  // namespace melete

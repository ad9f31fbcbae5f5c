// A path as a client names it, and whether it stays inside a folder.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace melete {

// The real path of `relative` below `root` (itself a real path), or nothing: for what does not exist, is
// absolute, climbs (`..`), is hidden, or leads outside through a link.
std::optional<std::filesystem::path> path_inside(const std::filesystem::path& root,
                                                 const std::string& relative);

// Whether a real path is `root` or below it.
bool is_inside(const std::filesystem::path& root, const std::filesystem::path& real_path);

}  // namespace melete

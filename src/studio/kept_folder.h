// A folder that grows with every use, and a bound to that.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace melete {

// Of the files and folders in it, those that were changed longest ago are removed until no more than `most`
// are left and these take no more than `most_bytes`. The newest stays in any case, and so do hidden ones and
// those that are `spared`. Returns the names of what is gone.
std::vector<std::string> clear_oldest(const std::filesystem::path& folder, size_t most, uintmax_t most_bytes,
                                      const std::function<bool(const std::string& name)>& spared = {});

}  // namespace melete

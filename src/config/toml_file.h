// Recipes on disk: TOML text and the files it includes, as plain ordered JSON.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace melete {

struct TomlFile {
  std::string path;
  nlohmann::ordered_json values;     // without the `include` key
  std::map<std::string, int> lines;  // dotted key -> line, for error messages

  std::string where(const std::string& key) const;  // "recipes/tiny.toml:7"
};

// The file and everything it includes (`include = "base.toml"` or a list, relative to the file that says so),
// in the order in which to apply them: what is included comes before what includes it, so later values win.
std::vector<TomlFile> read_toml(const std::string& path);

}  // namespace melete

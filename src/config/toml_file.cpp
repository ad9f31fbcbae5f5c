#include "config/toml_file.h"

#include <toml++/toml.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "core/base/error.h"

namespace melete {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr size_t largest_recipe_bytes = 4 << 20;
constexpr size_t deepest_include = 32;

std::string read_text(const std::string& path) {
  std::error_code ignored;
  require(!fs::is_directory(path, ignored), "[{}] expected a TOML file, got a folder", path);
  std::ifstream file(path, std::ios::binary);
  require(file.good(), "[{}] cannot be opened: {}", path, std::strerror(errno));
  std::string text, block(1 << 16, '\0');
  while (file && text.size() <= largest_recipe_bytes) {
    file.read(block.data(), static_cast<std::streamsize>(block.size()));
    text.append(block, 0, static_cast<size_t>(file.gcount()));
  }
  require(!file.bad(), "[{}] cannot be read: {}", path, std::strerror(errno));
  require(text.size() <= largest_recipe_bytes,
          "[{}] expected a recipe of at most {} MB; is this a TOML file?", path, largest_recipe_bytes >> 20);
  return text;
}

class Converter {
 public:
  explicit Converter(TomlFile& file) : file_(file) {}

  ordered_json convert(const toml::node& node, const std::string& name) {
    if (!name.empty()) file_.lines.try_emplace(name, static_cast<int>(node.source().begin.line));
    if (const auto* table = node.as_table()) return convert_table(*table, name);
    if (const auto* array = node.as_array()) {
      ordered_json out = ordered_json::array();
      for (const toml::node& element : *array) out.push_back(convert(element, name));
      return out;
    }
    if (const auto* value = node.as_boolean()) return value->get();
    if (const auto* value = node.as_integer()) return value->get();
    if (const auto* value = node.as_floating_point()) return value->get();
    if (const auto* value = node.as_string()) return value->get();
    fail("{}: [{}] expected text, a number, true/false, a list or a table, got a date or time",
         file_.where(name), name);
  }

 private:
  // In the order of the file, so that the first mistake in it is the first one named.
  ordered_json convert_table(const toml::table& table, const std::string& name) {
    std::vector<std::pair<const toml::key*, const toml::node*>> entries;
    for (auto&& [key, value] : table) entries.emplace_back(&key, &value);
    const auto position = [](const auto& entry) {
      const toml::source_position& begin = entry.first->source().begin;
      return std::pair(begin.line, begin.column);
    };
    std::stable_sort(entries.begin(), entries.end(),
                     [&](const auto& a, const auto& b) { return position(a) < position(b); });
    ordered_json out = ordered_json::object();
    for (const auto& [key, value] : entries) {
      const std::string word(key->str());
      out[word] = convert(*value, name.empty() ? word : name + "." + word);
    }
    return out;
  }

  TomlFile& file_;
};

TomlFile parse(const std::string& path) {
  TomlFile file{path, {}, {}};
  const std::string text = read_text(path);
  try {
    const toml::table table = toml::parse(text, path);
    file.values = Converter(file).convert(table, "");
  } catch (const toml::parse_error& error) {
    fail("{}:{}: not valid TOML: {}", path, error.source().begin.line, error.description());
  }
  return file;
}

std::vector<std::string> take_includes(TomlFile& file) {
  std::vector<std::string> includes;
  if (!file.values.contains("include")) return includes;
  const ordered_json value = file.values["include"];
  file.values.erase("include");
  for (const ordered_json& item : value.is_array() ? value : ordered_json::array({value})) {
    require(item.is_string() && !item.get_ref<const std::string&>().empty(),
            "{}: [include] expected a file name or a list of file names, got {}", file.where("include"),
            item.dump());
    includes.push_back(item);
  }
  return includes;
}

// open: the chain of files being read, for cycles; a file that two others include is fine.
void read_into(std::vector<TomlFile>& out, const std::string& path, std::vector<fs::path>& open) {
  std::error_code ignored;
  const fs::path identity = fs::weakly_canonical(path, ignored);
  if (std::find(open.begin(), open.end(), identity) != open.end()) {
    std::string chain;
    for (const fs::path& step : open) chain += step.filename().string() + " -> ";
    fail("[{}] includes itself: {}{}", path, chain, identity.filename().string());
  }
  require(open.size() < deepest_include, "[{}] expected at most {} files that include each other", path,
          deepest_include);
  open.push_back(identity);
  TomlFile file = parse(path);
  for (const std::string& include : take_includes(file)) {
    const fs::path target = (fs::path(path).parent_path() / include).lexically_normal();
    require(fs::exists(target, ignored), "{}: [include] expected a file, but '{}' does not exist",
            file.where("include"), target.string());
    read_into(out, target.string(), open);
  }
  open.pop_back();
  out.push_back(std::move(file));
  require(out.size() <= 1024, "[{}] expected at most 1024 included files", path);
}

}  // namespace

std::string TomlFile::where(const std::string& key) const {
  const auto found = lines.find(key);
  return found == lines.end() ? path : fmt::format("{}:{}", path, found->second);
}

std::vector<TomlFile> read_toml(const std::string& path) {
  std::vector<TomlFile> files;
  std::vector<fs::path> open;
  read_into(files, path, open);
  return files;
}

}  // namespace melete

// golden_test [--system NAME] [--filter REGEX]: runs every case folder below $MELETE_GOLDEN.
#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>

#include "core/base/error.h"
#include "core/engine.h"
#include "golden.h"

namespace fs = std::filesystem;

namespace melete::golden {

namespace {

using Kinds = std::map<std::string, CaseFunction>;

std::map<std::string, Kinds>& registry() {
  static std::map<std::string, Kinds> systems;
  return systems;
}

CaseFunction find_function(const Case& c) {
  const Kinds& kinds = registry()[c.system];
  if (!c.kind.empty()) {
    const auto found = kinds.find(c.kind);
    require(found != kinds.end(), "no test for class `{}` of {}", c.kind, c.system);
    return found->second;
  }
  // The longest name that the folder's begins with stands last before it in the order of the map.
  for (auto kind = kinds.rbegin(); kind != kinds.rend(); ++kind)
    if (c.name.starts_with(kind->first)) return kind->second;
  fail("no test for {}/{}, which has no class", c.system, c.name);
}

fs::path golden_folder() {
  if (const char* set = std::getenv("MELETE_GOLDEN")) return set;
  const fs::path source = MELETE_SOURCE_DIR;
  const fs::path shared = source / ".." / "shared" / "golden";
  return fs::exists(shared) ? shared : source / "tests" / "golden";
}

Case read_case(const fs::path& folder) {
  Case c;
  c.folder = folder.string();
  c.system = folder.parent_path().filename().string();
  c.name = folder.filename().string();
  std::ifstream file(folder / "case.json");
  c.json = nlohmann::ordered_json::parse(file);
  if (const auto kind = c.json.find("class"); kind != c.json.end() && kind->is_string()) c.kind = *kind;
  c.config = c.json.value("config", nlohmann::ordered_json::object());
  return c;
}

void read_values(Case& c) {
  for (const auto& [file, target] : {std::pair{"weights.safetensors", &c.weights}, {"io.safetensors", &c.io}})
    if (fs::exists(fs::path(c.folder) / file)) *target = read_tensors((fs::path(c.folder) / file).string());
}

bool run(Case& c) {
  const std::string label = fmt::format("{}/{}", c.system, c.name);
  Checker checker(tolerances_of(c.system));
  try {
    const CaseFunction function = find_function(c);
    read_values(c);
    function(c, checker);
    if (checker.compared() == 0) checker.fail("nothing was compared");
  } catch (const std::exception& error) {
    checker.fail(std::string(error.what()).substr(0, 400));
  }
  const bool passed = checker.failures().empty();
  fmt::print("{} {:<48} {:4} tensors, worst {:.1e} ({})\n", passed ? "ok  " : "FAIL", label,
             checker.compared(), checker.worst_relative(), checker.worst_label());
  for (const std::string& note : checker.notes()) fmt::print("     {}\n", note);
  size_t shown = 0;
  for (const std::string& failure : checker.failures()) {
    if (++shown > 12) break;
    fmt::print("     {}\n", failure);
  }
  std::fflush(stdout);
  return passed;
}

int run_all(const std::string& system, const std::string& filter) {
  const fs::path root = golden_folder();
  if (!fs::exists(root)) {
    fmt::print(stderr, "golden_test: no reference values at {}; set MELETE_GOLDEN\n", root.string());
    return 1;
  }
  std::vector<fs::path> folders;
  for (const auto& entry : fs::recursive_directory_iterator(root))
    if (entry.path().filename() == "case.json") folders.push_back(entry.path().parent_path());
  std::sort(folders.begin(), folders.end());

  const std::regex wanted(filter);
  int passed = 0, failed = 0;
  for (const fs::path& folder : folders) {
    Case c = read_case(folder);
    if (!system.empty() && c.system != system) continue;
    if (!std::regex_search(c.system + "/" + c.name, wanted)) continue;
    ++(run(c) ? passed : failed);
  }
  fmt::print("{} passed, {} failed\n", passed, failed);
  return failed == 0 && passed > 0 ? 0 : 1;
}

}  // namespace

bool register_case(const std::string& system, const std::string& kind, CaseFunction function) {
  registry()[system][kind] = function;
  return true;
}

}  // namespace melete::golden

int main(int argc, char** argv) {
  melete::prepare_process(argc, argv);
  melete::set_threads(0);
  std::string system, filter;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const bool has_value = i + 1 < argc;
    if (word == "--system" && has_value) {
      system = argv[++i];
    } else if (word == "--filter" && has_value) {
      filter = argv[++i];
    } else {
      fmt::print(stderr, "usage: golden_test [--system NAME] [--filter REGEX]\n");
      return 2;
    }
  }
  return melete::golden::run_all(system, filter);
}

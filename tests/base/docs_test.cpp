// Paths that the docs name are there: in backticks below the root or below src, in command lines, and what
// the examples include.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <string>
#include <vector>

namespace melete {
namespace docs_test {

namespace fs = std::filesystem;

const fs::path kRoot = MELETE_SOURCE_DIR;

std::vector<fs::path> pages() {
  std::vector<fs::path> found = {kRoot / "README.md", kRoot / "CONTRIBUTING.md"};
  for (const auto& entry : fs::directory_iterator(kRoot / "docs"))
    if (entry.path().extension() == ".md") found.push_back(entry.path());
  return found;
}

bool pattern(const std::string& path) {
  return path.find_first_of("*{<") != std::string::npos;
}

TEST(Docs, NameOnlyPathsThatAreThere) {
  // From a folder of the repository on; or in backticks with a source's ending, as includes have it.
  const std::regex from_root(
      R"((^|[^\w./-])((src|tests|docs|recipes|scripts|examples|cmake|web)/[\w./*{},<>-]*))");
  const std::regex source(R"(`([a-z_]+/[a-z0-9_/]+\.(h|cpp|toml|sh|mjs))[:`])");
  const std::regex include(R"re(#include "([^"]+)")re");
  int64_t checked = 0;
  for (const fs::path& page : pages()) {
    std::ifstream in(page);
    int64_t number = 0;
    for (std::string line; std::getline(in, line);) {
      ++number;
      const auto expect = [&](std::string path, bool below_src) {
        while (path.ends_with('.') || path.ends_with(',')) path.pop_back();
        if (pattern(path)) return;
        ++checked;
        EXPECT_TRUE(fs::exists(kRoot / path) || (below_src && fs::exists(kRoot / "src" / path)))
            << page.filename().string() << ":" << number << " names " << path << ", which is not there";
      };
      const std::sregex_iterator end;
      for (std::sregex_iterator at(line.begin(), line.end(), from_root); at != end; ++at)
        expect((*at)[2], false);
      for (std::sregex_iterator at(line.begin(), line.end(), source); at != end; ++at) expect((*at)[1], true);
      for (std::sregex_iterator at(line.begin(), line.end(), include); at != end; ++at)
        expect("src/" + (*at)[1].str(), false);
    }
  }
  EXPECT_GT(checked, 200);
}

}  // namespace docs_test
}  // namespace melete

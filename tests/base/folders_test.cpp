// Who may know whom: a folder includes only from itself and from those before it, a room only from rooms
// before it, and model files know nothing of files, runs or processes.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

namespace melete {
namespace folders_test {

namespace fs = std::filesystem;

const fs::path kSources = fs::path(MELETE_SOURCE_DIR) / "src";
const std::vector<std::string> kOrder = {"core",       "config",  "dist",    "io",     "data",     "kernels",
                                         "nn",         "losses",  "run",     "train",  "generate", "roles",
                                         "pretrained", "measure", "systems", "studio", "cli"};
const std::vector<std::string> kRooms = {"soundstream", "audiolm", "vocos", "voicebox",
                                         "spear_tts",   "musiclm", "muse"};

size_t place(const std::vector<std::string>& order, const std::string& name) {
  return static_cast<size_t>(std::find(order.begin(), order.end(), name) - order.begin());
}

struct File {
  std::string path;                   // below src
  std::vector<std::string> includes;  // of ours
};

std::vector<File> sources() {
  std::vector<File> files;
  const std::regex include("^#include \"([a-z0-9_]+/[a-z0-9_/]+\\.h)\"");
  for (const auto& entry : fs::recursive_directory_iterator(kSources)) {
    const std::string extension = entry.path().extension().string();
    if (extension != ".h" && extension != ".cpp") continue;
    File file{fs::relative(entry.path(), kSources).string(), {}};
    std::ifstream in(entry.path());
    std::smatch match;
    for (std::string line; std::getline(in, line);)
      if (std::regex_search(line, match, include)) file.includes.push_back(match[1]);
    files.push_back(std::move(file));
  }
  return files;
}

std::string first_part(const std::string& path) {
  return path.substr(0, path.find('/'));
}

// "" for what stands in systems/ itself
std::string room_of(const std::string& path) {
  const fs::path p(path);
  auto part = p.begin();
  if (part == p.end() || *part != "systems") return "";
  return std::distance(p.begin(), p.end()) > 2 ? (++part)->string() : "";
}

TEST(Folders, NoneReachesToOneThatComesLater) {
  const auto files = sources();
  ASSERT_GT(files.size(), 200u);
  for (const File& file : files) {
    const size_t own = place(kOrder, first_part(file.path));
    ASSERT_LT(own, kOrder.size()) << file.path << " is in a folder that this test does not know";
    for (const std::string& include : file.includes)
      EXPECT_LE(place(kOrder, first_part(include)), own) << file.path << " includes " << include;
  }
}

TEST(Folders, RoomsKnowOnlyThoseBeforeThem) {
  for (const File& file : sources()) {
    const std::string room = room_of(file.path);
    if (room.empty()) continue;
    ASSERT_LT(place(kRooms, room), kRooms.size())
        << file.path << " is in a room that this test does not know";
    for (const std::string& include : file.includes) {
      const std::string other = room_of(include);
      EXPECT_TRUE(other.empty() || place(kRooms, other) <= place(kRooms, room))
          << file.path << " includes " << include;
    }
  }
}

// Below the rooms no file names a system.
TEST(Folders, FloorsDoNotKnowTheSystems) {
  for (const File& file : sources()) {
    const std::string folder = first_part(file.path);
    if (folder == "systems" || folder == "cli") continue;  // studio knows none either
    for (const std::string& include : file.includes) EXPECT_NE(first_part(include), "systems") << file.path;
  }
}

// Everything that a file includes, and what those include.
std::set<std::string> reached(const std::string& path,
                              const std::map<std::string, std::vector<std::string>>& includes) {
  std::set<std::string> all;
  std::vector<std::string> waiting = {path};
  while (!waiting.empty()) {
    const auto found = includes.find(waiting.back());
    waiting.pop_back();
    if (found == includes.end()) continue;
    for (const std::string& include : found->second)
      if (all.insert(include).second) waiting.push_back(include);
  }
  return all;
}

// A model is what a room's task, recipe, generation and files are made around, not the other way round. By
// name, those that are not models: with or without an ending (`task_vqgan`).
const std::vector<std::string> kPlumbing = {
    "align_recordings",  // Voicebox's timings of a folder of recordings
    "bench",
    "export",
    "foreign_files",
    "foreign_names",
    "generation",
    "import",
    "load",
    "pairs",  // SPEAR-TTS's texts of untranscribed speech
    "recipe",
    "recipes",
    "samples",
    "saved_voice",  // Voicebox's voices on disk
    "system",
    "task",
    "text_to_tokens",      // SPEAR-TTS's generation, a text at a time
    "training",            // SPEAR-TTS's optimiser steps, as upstream makes them
    "upstream_schedule"};  // Voicebox's rates, as upstream has them

TEST(Folders, ModelsKnowNothingOfFilesRunsOrProcesses) {
  const std::set<std::string> unknown = {"run", "train", "dist", "measure", "pretrained"};
  std::map<std::string, std::vector<std::string>> includes;
  for (const File& file : sources()) includes[file.path] = file.includes;
  std::set<std::string> needed;
  int64_t models = 0;
  for (const auto& [path, direct] : includes) {
    if (room_of(path).empty()) continue;
    const std::string stem = fs::path(path).stem().string();
    const auto exempt = std::find_if(kPlumbing.begin(), kPlumbing.end(), [&](const std::string& name) {
      return stem == name ||
             (stem.starts_with(name + "_") && (name == "task" || name == "recipe" || name == "generation"));
    });
    models += exempt == kPlumbing.end();
    for (const std::string& include : reached(path, includes)) {
      // What a layer is told of the group of ranks, an interface of a few lines that nn has, too.
      if (unknown.count(first_part(include)) == 0 || include == "dist/group_member.h") continue;
      EXPECT_NE(exempt, kPlumbing.end()) << path << " reaches " << include;
      if (exempt != kPlumbing.end()) needed.insert(*exempt);
    }
  }
  EXPECT_GT(models, 60);
  for (const std::string& name : kPlumbing)
    EXPECT_EQ(needed.count(name), 1u) << "`" << name << "` needs no exemption any more; take it off the list";
}

}  // namespace folders_test
}  // namespace melete

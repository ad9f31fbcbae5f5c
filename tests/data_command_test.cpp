#include "cli/data_command.h"

#include <gtest/gtest.h>

#include "base/temporary_folder.h"
#include "core/base/error.h"
#include "data/base/manifest.h"

namespace melete {
namespace data_command_test {

using testing::TemporaryFolder;
using testing::write_bytes;

std::string usage_message(const std::vector<std::string>& args) {
  try {
    data_command(args);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no usage error";
}

TEST(DataCommand, MakesIndexesChecksAndDescribes) {
  const TemporaryFolder folder;
  const std::string music = folder.path() + "/music", manifest = folder.path() + "/m.jsonl";
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(data_command({"synth", "--kind", "music", "-o", music, "--count", "5", "--seed", "3", "--rate",
                          "16000", "--seconds", "1.5"}),
            0);
  EXPECT_EQ(data_command({"index", music, "-o", manifest}), 0);
  EXPECT_EQ(data_command({"check", manifest}), 0);
  EXPECT_EQ(data_command({"stats", manifest}), 0);
  const std::string shown = ::testing::internal::GetCapturedStdout();
  for (const char* words : {"5 recordings", "5 files, all good", "16000 Hz", "LUFS"})
    EXPECT_NE(shown.find(words), std::string::npos) << shown;
  const auto entries = read_manifest(manifest);
  ASSERT_EQ(entries.size(), 5u);
  EXPECT_EQ(entries[4].frames, 24000);
  EXPECT_FALSE(entries[4].text.empty());

  write_bytes(music + "/broken.flac", "no flac");
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(data_command({"check", music}), 1);
  EXPECT_EQ(data_command({"index", music, "-o", manifest}), 0);
  const std::string complaint = ::testing::internal::GetCapturedStdout();
  EXPECT_NE(complaint.find("broken.flac"), std::string::npos) << complaint;
  EXPECT_NE(complaint.find("1 skipped"), std::string::npos) << complaint;
}

TEST(DataCommand, WrongWordsNameTheRightOnes) {
  EXPECT_NE(usage_message({"indx", "."}).find("'data index'"), std::string::npos);
  EXPECT_NE(usage_message({"synth", "-o", "x", "--cuont", "3"}).find("--count"), std::string::npos);
  EXPECT_NE(usage_message({"index", "."}).find("-o"), std::string::npos);
  EXPECT_NE(usage_message({"synth", "-o", "x", "--kind", "noise"}).find("music"), std::string::npos);
  EXPECT_NE(usage_message({}).find("data index"), std::string::npos);
  EXPECT_THROW(data_command({"check", "/nowhere/at/all"}), Error);
}

}  // namespace data_command_test
}  // namespace melete

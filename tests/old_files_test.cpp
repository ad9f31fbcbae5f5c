// What earlier programs have left behind loads, goes on and generates: tests/old_files.
#include <gtest/gtest.h>

#include <filesystem>

#include "base/temporary_folder.h"
#include "cli/app.h"
#include "data/token_folder.h"
#include "io/base/audio_file.h"
#include "run/run_folder.h"
#include "systems/soundstream/load.h"

namespace melete {
namespace old_files_test {

namespace fs = std::filesystem;
using melete::testing::TemporaryFolder;

const fs::path kOldFiles = fs::path(MELETE_SOURCE_DIR) / "tests" / "old_files";

class OldFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::copy(kOldFiles / "0.1.0", folder_ / "runs", fs::copy_options::recursive);
    // The recordings are a function of the seed, and are not kept.
    ASSERT_EQ(run_program({"data", "synth", "-o", folder_ / "recordings", "--count", "3", "--seconds", "1",
                           "--rate", "8000", "--format", "wav", "--seed", "5"}),
              0);
  }
  std::string in(const std::string& name) const { return folder_ / ("runs/" + name); }

  // One more step of a run, with the data given anew: its own paths are of another time.
  void expect_goes_on(const std::string& what, const std::string& run, const std::vector<std::string>& more) {
    SCOPED_TRACE(what);
    std::vector<std::string> words = {"train", what, "--out", in(run), "--resume", "--steps", "3"};
    words.insert(words.end(), more.begin(), more.end());
    ASSERT_EQ(run_program(words), 0);
    const Checkpoint now = latest_usable(in(run), {})->checkpoint;
    EXPECT_EQ(now.step(), 3);
    for (const auto& [name, tensor] : now.tensors)
      if (name.starts_with("optimiser.") && name.ends_with(".step")) {
        EXPECT_EQ(tensor.item<int64_t>(), 3) << name << ": its optimiser began again";
        break;
      }
  }

  TemporaryFolder folder_;
};

TEST_F(OldFiles, ACodecLoadsEncodesAndGoesOn) {
  const LoadedCodec loaded = load_codec(in("codec"));
  EXPECT_EQ(loaded.step, 2);
  EXPECT_EQ(run_program(
                {"codec", "encode", folder_ / "recordings", "--from", in("codec"), "-o", folder_ / "coded"}),
            0);
  EXPECT_EQ(
      run_program({"codec", "decode", folder_ / "coded", "--from", in("codec"), "-o", folder_ / "decoded"}),
      0);
  expect_goes_on("soundstream", "codec", {"--data", folder_ / "recordings"});
}

TEST_F(OldFiles, StagesGenerateAndGoOn) {
  const std::string out = folder_ / "made.wav";
  ASSERT_EQ(run_program({"generate", "audiolm", "--from", in(""), "--codec", in("codec"), "--prompt",
                         folder_ / "recordings/music_000000.wav", "--prompt-seconds", "0.5", "--seconds",
                         "0.5", "--seed", "1", "-o", out}),
            0);
  EXPECT_GT(read_audio(out).samples.size(), 4000u);
  const std::string tokenizer = in("tokenizer.safetensors");
  expect_goes_on("semantic", "semantic", {"--data", in("tokens"), "--semantic_from", tokenizer});
  expect_goes_on("coarse", "coarse",
                 {"--data", in("tokens"), "--semantic_from", tokenizer, "--codec_from", in("codec")});
  expect_goes_on("fine", "fine", {"--data", in("tokens"), "--codec_from", in("codec")});
}

TEST_F(OldFiles, TheFirstVersionOfTokensIsReadAsTheSecond) {
  const std::string first = (kOldFiles / "tokens_version_1").string(), second = in("tokens");
  const TokenColumns old = read_token_columns(first), now = read_token_columns(second);
  ASSERT_EQ(old.list.size(), now.list.size());
  for (size_t i = 0; i < old.list.size(); ++i) {
    EXPECT_EQ(old.list[i].name, now.list[i].name);
    EXPECT_EQ(old.list[i].identity, now.list[i].identity);
    EXPECT_EQ(old.list[i].values, now.list[i].values);
    EXPECT_EQ(old.list[i].width, now.list[i].width);
    EXPECT_EQ(old.list[i].per_second, now.list[i].per_second);
  }
  expect_goes_on(
      "coarse", "coarse",
      {"--data", first, "--semantic_from", in("tokenizer.safetensors"), "--codec_from", in("codec")});
}

}  // namespace old_files_test
}  // namespace melete

#include "data/base/timings.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>

#include <filesystem>
#include <fstream>

#include "core/base/error.h"
#include "data/base/synth_speech.h"

namespace melete {
namespace timings_test {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class TimingsFile : public ::testing::Test {
 protected:
  TimingsFile() { fs::create_directories(folder_); }
  ~TimingsFile() override { fs::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name) << text;
    return (folder_ / name).string();
  }
  std::string error_of(const std::string& path) {
    try {
      read_timings(path);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }

  fs::path folder_ = fs::temp_directory_path() / fmt::format("melete_timings_{}", ::getpid());
};

TEST_F(TimingsFile, ReadsWhatItWroteWhereverTheFolderGoes) {
  Timings timings;
  timings.phonemizer.language = "de";
  timings.list = {{(folder_ / "a.wav").string(), {"_", "a", "."}, {0.05, 0.2, 0.25}}};
  write_timings((folder_ / "t.jsonl").string(), timings);
  const fs::path moved = folder_ / "moved";
  fs::create_directories(moved);
  fs::rename(folder_ / "t.jsonl", moved / "t.jsonl");
  const Timings read = read_timings((moved / "t.jsonl").string());
  EXPECT_EQ(read.phonemizer, timings.phonemizer);
  ASSERT_EQ(read.list.size(), 1u);
  EXPECT_EQ(read.list[0].path, (moved / "a.wav").string());
  EXPECT_EQ(read.list[0].phonemes, timings.list[0].phonemes);
  EXPECT_EQ(read.list[0].ends_seconds, timings.list[0].ends_seconds);
  const TimingIndex index(read.list);
  EXPECT_NE(index.find((moved / "." / "a.wav").string()), nullptr);
  EXPECT_EQ(index.find((folder_ / "a.wav").string()), nullptr);
}

TEST_F(TimingsFile, RefusesWhatIsNotRight) {
  const std::string head =
      R"({"timings":1,"phonemizer":{"source":"characters","language":"en","lexicon":""}})";
  EXPECT_THAT(error_of(write("a.jsonl", "hello\n")), HasSubstr("a.jsonl:1"));
  EXPECT_THAT(error_of(write("b.jsonl", head + "\n" + R"({"path":"x","phonemes":"a b","ends":[0.1]})")),
              HasSubstr("b.jsonl:2"));
  EXPECT_THAT(error_of(write("c.jsonl", head + "\n" + R"({"path":"x","phonemes":"a b","ends":[0.2,0.1]})")),
              HasSubstr("must not fall"));
  EXPECT_THAT(error_of(write("d.jsonl", head + "\n")), HasSubstr("there are none"));
  EXPECT_THAT(error_of((folder_ / "missing.jsonl").string()), HasSubstr("cannot read"));
  EXPECT_THAT(error_of(write("e.ctm", "rec 1 0.0\n")), HasSubstr("e.ctm:1"));
}

TEST_F(TimingsFile, ReadsTextGridsAndCtm) {
  fs::create_directories(folder_ / "grids");
  write("grids/rec.TextGrid",
        "File type = \"ooTextFile\"\nitem [1]:\n  class = \"IntervalTier\"\n  name = \"words\"\n"
        "  intervals [1]:\n    xmin = 0\n    xmax = 1\n    text = \"oak\"\n"
        "item [2]:\n  name = \"phones\"\n  xmin = 0\n  xmax = 1\n  intervals [1]:\n    xmin = 0\n    xmax = "
        "0.2\n    text = \"\"\n  intervals [2]:\n    xmin = 0.2\n    xmax = 0.7\n    text = \"oʊ\"\n"
        "  intervals [3]:\n    xmin = 0.8\n    xmax = 1\n    text = \"k\"\n");
  const Timings grids = read_timings((folder_ / "grids").string());
  ASSERT_EQ(grids.list.size(), 1u);
  EXPECT_FALSE(grids.from_melete);
  EXPECT_THAT(grids.list[0].phonemes, ElementsAre("_", "oʊ", "_", "k"));
  EXPECT_THAT(grids.list[0].ends_seconds, ElementsAre(0.2, 0.7, 0.8, 1));
  EXPECT_NE(TimingIndex(grids.list).find("/elsewhere/rec.flac"), nullptr);

  const Timings ctm = read_timings(write("all.ctm", "rec 1 0.1 0.3 a\nrec 1 0.4 0.2 b\nnext 1 0 0.5 sil\n"));
  ASSERT_EQ(ctm.list.size(), 2u);
  EXPECT_THAT(ctm.list[0].phonemes, ElementsAre("_", "a", "b"));
  EXPECT_NE(TimingIndex(ctm.list).find("somewhere/next.wav"), nullptr);
}

TEST(Timings, FramesAddUpWhateverTheRounding) {
  EXPECT_THAT(frames_of({0.05, 0.12, 0.3}, 10, 4), ElementsAre(1, 0, 3));
  EXPECT_THAT(frames_of({0.5, 9}, 10, 4), ElementsAre(4, 0));
}

TEST(Timings, EspeakKnowsWhenItSaysWhat) {
  if (!espeak_library_installed()) GTEST_SKIP() << "libespeak-ng is not installed";
  for (int64_t index = 0; index < 20; ++index) {  // many voices
    const SpokenUtterance spoken = speak_timed(make_utterance(5, index), 16000);
    ASSERT_EQ(spoken.timing.phonemes.size(), spoken.timing.ends_seconds.size());
    EXPECT_NEAR(spoken.timing.ends_seconds.back(), static_cast<double>(spoken.samples.size()) / 16000, 1e-3);
    EXPECT_TRUE(std::is_sorted(spoken.timing.ends_seconds.begin(), spoken.timing.ends_seconds.end()));
  }
}

}  // namespace timings_test
}  // namespace melete

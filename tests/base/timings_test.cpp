#include "data/base/timings.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "core/base/error.h"
#include "data/base/synth_speech.h"
#include "temporary_folder.h"

namespace melete {
namespace timings_test {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A words tier, a tier of points, the phones and one after them, as Praat writes them in its long form ...
constexpr const char* kLongGrid =
    "File type = \"ooTextFile\"\nObject class = \"TextGrid\"\n\nxmin = 0 \nxmax = 1 \ntiers? <exists> \n"
    "size = 4 \nitem []: \n"
    "    item [1]:\n        class = \"IntervalTier\" \n        name = \"words\" \n        xmin = 0 \n"
    "        xmax = 1 \n        intervals: size = 1 \n        intervals [1]:\n            xmin = 0 \n"
    "            xmax = 1 \n            text = \"oak \"\"7 8\"\"\" \n"
    "    item [2]:\n        class = \"TextTier\" \n        name = \"tones\" \n        xmin = 0 \n"
    "        xmax = 1 \n        points: size = 1 \n        points [1]:\n            number = 0.5 \n"
    "            mark = \"H\" \n"
    "    item [3]:\n        class = \"IntervalTier\" \n        name = \"phones\" \n        xmin = 0 \n"
    "        xmax = 1 \n        intervals: size = 3 \n        intervals [1]:\n            xmin = 0 \n"
    "            xmax = 0.2 \n            text = \"\" \n        intervals [2]:\n            xmin = 0.2 \n"
    "            xmax = 0.7 \n            text = \"oʊ\" \n        intervals [3]:\n            xmin = 0.8 \n"
    "            xmax = 1 \n            text = \"k\" \n"
    "    item [4]:\n        class = \"IntervalTier\" \n        name = \"notes\" \n        xmin = 0 \n"
    "        xmax = 1 \n        intervals: size = 1 \n        intervals [1]:\n            xmin = 0 \n"
    "            xmax = 1 \n            text = \"late\" \n";
// ... and the same in its short one.
constexpr const char* kShortGrid =
    "File type = \"ooTextFile\"\nObject class = \"TextGrid\"\n\n0\n1\n<exists>\n4\n\"IntervalTier\"\n"
    "\"words\"\n0\n1\n1\n0\n1\n\"oak \"\"7 8\"\"\"\n\"TextTier\"\n\"tones\"\n0\n1\n1\n0.5\n\"H\"\n"
    "\"IntervalTier\"\n\"phones\"\n0\n1\n3\n0\n0.2\n\"\"\n0.2\n0.7\n\"oʊ\"\n0.8\n1\n\"k\"\n"
    "\"IntervalTier\"\n\"notes\"\n0\n1\n1\n0\n1\n\"late\"\n";

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

// Words of the lexicon that were said so when the times were found.
TEST_F(TimingsFile, KeepTheLexiconWhenItsFileIsGone) {
  Timings timings;
  timings.phonemizer.source = "characters";
  timings.phonemizer.lexicon = write("lexicon.txt", "Melete m ɛ l\n");
  timings.list = {{(folder_ / "a.wav").string(), {"_", "a", "."}, {0.05, 0.2, 0.25}}};
  const std::string path = (folder_ / "t.jsonl").string();
  write_timings(path, timings);
  fs::remove(timings.phonemizer.lexicon);
  EXPECT_EQ(joined(Phonemizer(read_timings(path).phonemizer)("Melete")), "_ m ɛ l .");
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
  const auto error_of_one = [&](const std::string& name, const std::string& text) {
    fs::remove_all(folder_ / "one");
    fs::create_directories(folder_ / "one");
    write("one/" + name, text);
    return error_of((folder_ / "one").string());
  };
  const std::string grid = kShortGrid;
  EXPECT_THAT(error_of_one("x.TextGrid", grid.substr(0, grid.size() / 2)), HasSubstr("x.TextGrid"));
  EXPECT_THAT(error_of_one("x.TextGrid", "hello"), HasSubstr("text form"));
  EXPECT_THAT(error_of_one("x.TextGrid", "0\n1\n<exists>\n1e300\n"), HasSubstr("ends before that"));
  EXPECT_THAT(error_of_one("x.csv", "Start,Stop\n0,1\n"), HasSubstr("Type"));
  EXPECT_THAT(error_of_one("x.csv", "Begin,End,Label,Type\n0,one,a,phones\n"), HasSubstr("x.csv:2"));
  EXPECT_THAT(error_of_one("x.lab", "just a text\n"), HasSubstr("festvox"));
}

TEST_F(TimingsFile, ReadsWhatOtherAlignersWrite) {
  fs::create_directories(folder_ / "grids");
  write("grids/a.TextGrid", kLongGrid);
  write("grids/b.TextGrid", kShortGrid);
  write("grids/c.csv",
        "Begin,End,Label,Type,Speaker\r\n0.2,1.0,\"oak, old\",words,me\r\n0.2,0.7,oʊ,phones,me\r\n"
        "0.8,1.0,k,phones,me\r\n");
  write("grids/d.lab",
        "separator ;\nnfields 1\n#\n    0.2 125 pau ;\n    0.7 125 oʊ\n 0.8 125 pau\n 1 125 k\n");
  const Timings grids = read_timings((folder_ / "grids").string());
  ASSERT_EQ(grids.list.size(), 4u);
  EXPECT_FALSE(grids.from_melete);
  for (const SpokenTiming& timing : grids.list) {
    EXPECT_THAT(timing.phonemes, ElementsAre("_", "oʊ", "_", "k")) << timing.path;
    EXPECT_THAT(timing.ends_seconds, ElementsAre(0.2, 0.7, 0.8, 1)) << timing.path;
  }
  for (const char* name : {"a", "b", "c", "d"})
    EXPECT_NE(TimingIndex(grids.list).find(fmt::format("/elsewhere/{}.flac", name)), nullptr);

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

constexpr const char* kSpeakTo = "MELETE_TEST_SPEAK_TO";

TEST(Timings, EspeakSpeaksToAFile) {
  const char* path = std::getenv(kSpeakTo);
  if (path == nullptr) GTEST_SKIP() << "runs only as a process of Timings.EspeakSaysTheSameInEveryProcess";
  const EspeakSpeech speech =
      espeak_speak_timed("seven miles between the garden and the river", {"en-us+f3"});
  std::ofstream out(path, std::ios::binary);
  for (const float sample : speech.samples) out << sample << '\n';
}

// The seed of its noise is not that of the second in which a process begins.
TEST(Timings, EspeakSaysTheSameInEveryProcess) {
  if (!espeak_library_installed()) GTEST_SKIP() << "libespeak-ng is not installed";
  const testing::TemporaryFolder folder;
  const auto spoken = [&](const std::string& name) {
    const std::string path = folder.path() + "/" + name;
    const std::string command = fmt::format("{}={} {} --gtest_filter=Timings.EspeakSpeaksToAFile > /dev/null",
                                            kSpeakTo, path, fs::read_symlink("/proc/self/exe").string());
    EXPECT_EQ(std::system(command.c_str()), 0);
    return testing::read_bytes(path);
  };
  const std::string first = spoken("first");
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  EXPECT_GT(std::count(first.begin(), first.end(), '\n'), 20000);
  EXPECT_TRUE(spoken("second") == first);
}

}  // namespace timings_test
}  // namespace melete

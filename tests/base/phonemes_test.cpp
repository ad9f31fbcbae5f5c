#include "data/base/phonemes.h"

#include <gmock/gmock.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "core/base/error.h"
#include "data/base/espeak.h"

namespace melete {
namespace phonemes_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Phonemizer characters(const std::string& lexicon = "") {
  PhonemizerConfig config;
  config.source = "characters";
  config.lexicon = lexicon;
  return Phonemizer(config);
}

std::string message(const auto& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Phonemes, CharactersKeepWordsAndPausesApart) {
  EXPECT_EQ(joined(characters()("Don't go, Ödipus!")), "_ d o n ' t | g o , ö d i p u s !");
  // A mark inside a number is none, several are one, quotes are silent.
  EXPECT_EQ(joined(characters()("\"3.5 miles...\" yes")), "_ 3 5 | m i l e s . y e s .");
}

TEST(Phonemes, BytesNeedNoAlphabet) {
  PhonemizerConfig config;
  config.source = "bytes";
  EXPECT_EQ(joined(Phonemizer(config)("Ä b, c")), "_ c3 84 | 62 , 63 .");
}

TEST(Phonemes, InlineOnesStandForThemselves) {
  EXPECT_EQ(joined(characters()("a [[ˈoʊ k]] b.")), "_ a ˈoʊ k | b .");
  EXPECT_THAT(message([] { characters()("a [[ˈoʊ"); }), HasSubstr("not closed"));
  EXPECT_THAT(message([] { characters()(" ... "); }), HasSubstr("nothing to say"));
}

TEST(Phonemes, LexiconComesFirst) {
  const auto path = std::filesystem::temp_directory_path() / "melete_lexicon_test.txt";
  std::ofstream(path) << "# names\nMelete m ɛ l\n";
  EXPECT_EQ(joined(characters(path.string())("see melete go")), "_ s e e m ɛ l | g o .");
  PhonemizerConfig kept;
  kept.source = "characters";
  kept.lexicon = path.string();
  read_lexicon(kept);
  std::ofstream(path) << "alone\n";
  EXPECT_THAT(message([&] { characters(path.string()); }), HasSubstr(":1: expected a word"));
  std::filesystem::remove(path);
  EXPECT_THAT(message([&] { characters(path.string()); }), HasSubstr("cannot read"));
  EXPECT_EQ(joined(Phonemizer(kept)("see melete go")), "_ s e e m ɛ l | g o .") << "what was read stays";
}

TEST(Phonemes, EspeakGivesIpaWithStress) {
  if (!espeak_installed() && !espeak_library_installed()) GTEST_SKIP() << "espeak-ng is not installed";
  EXPECT_EQ(joined(Phonemizer({})("The river, near the mill?")), "_ ð ə ɹ ˈɪ v ɚ , n ˌɪɹ ð ə m ˈɪ l ?");
  PhonemizerConfig unknown;
  unknown.language = "xx-none";
  EXPECT_THAT(message([&] { Phonemizer{unknown}("hello"); }), HasSubstr("xx-none"));
}

TEST(Phonemes, SentencesEndWhereAReaderBreathes) {
  EXPECT_THAT(sentences("Hello, there. It is 3.5 miles!\nNext line"),
              ElementsAre("Hello, there.", "It is 3.5 miles!", "Next line"));
  EXPECT_TRUE(sentences(" ... ").empty());
}

TEST(Phonemes, TableFallsBackToThePlainSoundAndNamesTheUnknown) {
  const PhonemeTable table = PhonemeTable::of({{"ˈoʊ", "ð"}, {"k", "ð"}});
  EXPECT_EQ(PhonemeTable(table.listed()).listed(), table.listed());
  EXPECT_EQ(table.size(), 8);  // five pauses, and the three
  EXPECT_EQ(table.ids({"oʊ"}), table.ids({"ˈoʊ"}));
  EXPECT_THAT(message([&] { table.ids({"ʒ"}); }), HasSubstr("ʒ"));
}

}  // namespace phonemes_test
}  // namespace melete

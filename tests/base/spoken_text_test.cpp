// Texts on their way to a voice: what is written as it is said, in parts that can be said in one breath; and
// pieces of words fitted to texts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "data/base/bpe_trainer.h"
#include "data/base/passages.h"
#include "data/base/sentencepiece.h"
#include "data/base/spoken_english.h"
#include "data/base/unigram_trainer.h"

namespace melete {
namespace spoken_text_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(SpokenEnglish, Numbers) {
  EXPECT_EQ(number_in_words(0), "zero");
  EXPECT_EQ(number_in_words(100), "one hundred");
  EXPECT_EQ(number_in_words(-342), "minus three hundred forty-two");
  EXPECT_EQ(number_in_words(1'000'019), "one million nineteen");
  EXPECT_EQ(ordinal_in_words(1), "first");
  EXPECT_EQ(ordinal_in_words(12), "twelfth");
  EXPECT_EQ(ordinal_in_words(20), "twentieth");
  EXPECT_EQ(ordinal_in_words(103), "one hundred third");
  EXPECT_EQ(year_in_words(1905), "nineteen oh five");
  EXPECT_EQ(year_in_words(2000), "two thousand");
  EXPECT_EQ(year_in_words(2024), "twenty twenty-four");
  EXPECT_EQ(year_in_words(1900), "nineteen hundred");
}

TEST(SpokenEnglish, TextsAsTheyAreSaid) {
  const std::pair<const char*, const char*> said[] = {
      {"I have 3 apples.", "I have three apples."},
      {"1,234 people, 56 dogs", "one thousand two hundred thirty-four people, fifty-six dogs"},
      {"It is 3.14 or -5.", "It is three point one four or minus five."},
      {"50% of 12 %", "fifty percent of twelve percent"},
      {"In 1999, in 2007.", "In nineteen ninety-nine, in two thousand seven."},
      {"the 21st time", "the twenty-first time"},
      {"pages 5-10", "pages five to ten"},
      {"on May 3, 2021.", "on May third, twenty twenty-one."},
      {"on 3 May 2021", "on the third of May, twenty twenty-one"},
      {"since 2021-05-03", "since May third, twenty twenty-one"},
      {"Dec. 24th", "December twenty-fourth"},
      {"at 10:30, 7:05 and 9:00", "at ten thirty, seven oh five and nine o'clock"},
      {"at 6:15 pm", "at six fifteen p m"},
      {"$5, $1.50 and \u00a33 million", "five dollars, one dollar and fifty cents and three million pounds"},
      {"Dr. Smith & Mrs. Jones, e.g. at St. Paul",
       "Doctor Smith and Misses Jones, for example at Saint Paul"},
      {"5km and 10 kg", "five kilometers and ten kilograms"},
      {"call 0123", "call zero one two three"},
      {"no numbers: na\u00efve \u65e5\u672c", "no numbers: na\u00efve \u65e5\u672c"},
      {"99999999999999999",
       "nine nine nine nine nine nine nine nine nine nine nine nine nine nine nine nine nine"},
      {"x86 and R2D2", "x86 and R2D2"},
      {"", ""}};
  for (const auto& [written, expected] : said) EXPECT_EQ(spoken_english(written), expected) << written;
}

std::vector<std::string> parts(std::string_view text, size_t longest = 300) {
  std::vector<std::string> result;
  for (const Passage& passage : passages(text, longest)) result.push_back(passage.text);
  return result;
}

TEST(Passages, AreSentences) {
  EXPECT_THAT(parts("One. Two! \"Three?\" Four"), ElementsAre("One.", "Two!", "\"Three?\"", "Four"));
  EXPECT_THAT(parts("Version 3.5 of example.com..."), ElementsAre("Version 3.5 of example.com..."));
  EXPECT_THAT(parts("\u4f60\u597d\u3002\u518d\u89c1\u3002"),
              ElementsAre("\u4f60\u597d\u3002", "\u518d\u89c1\u3002"));
  EXPECT_THAT(parts(" \n "), ElementsAre());
}

TEST(Passages, PausesAreLongerBetweenParagraphs) {
  const std::vector<Passage> made = passages("One. Two.\n\nThree.");
  ASSERT_EQ(made.size(), 3u);
  EXPECT_GT(made[1].pause_seconds, made[0].pause_seconds);
  EXPECT_GT(made[0].pause_seconds, 0);
  EXPECT_EQ(made[2].pause_seconds, 0);
}

TEST(Passages, LongSentencesAreCutAndNothingIsLost) {
  EXPECT_THAT(parts("a long part, then more words here", 20),
              ElementsAre("a long part,", "then more words here"));
  EXPECT_THAT(parts("aaaa bbbb cccc", 9), ElementsAre("aaaa bbbb", "cccc"));
  EXPECT_THAT(parts("aaaaaaaaaa", 4), ElementsAre("aaaa", "aaaa", "aa"));
}

std::vector<std::string> little_corpus() {
  std::vector<std::string> texts;
  for (const char* who : {"the sailor", "the old sailor", "the gar\u00e7on", "a teacher"})
    for (const char* what : {"crossed the river", "painted the window", "crossed the  garden"})
      texts.push_back(std::string(who) + " " + what);
  return texts;
}

TEST(UnigramTrainer, FrequentWordsBecomePieces) {
  UnigramConfig config;
  config.vocabulary = 30;
  const PieceFit fit = fit_unigram(little_corpus(), config);
  const SentencePieceModel model(fit.model, "fitted");
  EXPECT_EQ(model.size(), 30);
  EXPECT_EQ(model.pad_id(), 0);
  EXPECT_EQ(model.end_id(), 1);
  EXPECT_EQ(model.unknown_id(), 2);
  EXPECT_EQ(model.encode("the").size(), 1u);
  EXPECT_EQ(model.encode("crossed").size(), 1u);
  for (const std::string& text : little_corpus()) {
    std::string spaced = text;
    if (const size_t at = spaced.find("  "); at != std::string::npos) spaced.erase(at, 1);
    EXPECT_EQ(model.decode(model.encode(text)), spaced);
  }
  EXPECT_LT(fit.pieces_a_word, 3);
  EXPECT_EQ(fit_unigram(little_corpus(), config).model, fit.model);  // the same texts, the same bytes
}

TEST(UnigramTrainer, BytesStandForWhatWasNeverSeen) {
  UnigramConfig config;
  config.vocabulary = 300;
  config.byte_fallback = true;
  const SentencePieceModel model(fit_unigram(little_corpus(), config).model, "fitted");
  EXPECT_LE(model.size(), 300);
  EXPECT_EQ(model.decode(model.encode("the \u65e5")), "the \u65e5");
}

TEST(BpeTrainer, PairsThatAreCommonBecomePieces) {
  PieceConfig config;
  config.vocabulary = 50;
  const PieceFit fit = fit_bpe(little_corpus(), config);
  const SentencePieceModel model(fit.model, "fitted");
  EXPECT_EQ(model.size(), 50);
  EXPECT_EQ(model.pad_id(), 0);
  EXPECT_EQ(model.end_id(), 1);
  EXPECT_EQ(model.piece(3), "he");  // of "the", 18 times, and no pair more often
  EXPECT_EQ(model.encode("the").size(), 1u);
  EXPECT_EQ(model.encode("crossed").size(), 1u);
  // What fitting counts is what encoding gives.
  double pieces = 0, words = 0;
  for (const std::string& text : little_corpus()) {
    std::string spaced = text;
    if (const size_t at = spaced.find("  "); at != std::string::npos) spaced.erase(at, 1);
    EXPECT_EQ(model.decode(model.encode(text)), spaced);
    pieces += static_cast<double>(model.encode(text).size());
    words += static_cast<double>(1 + std::count(spaced.begin(), spaced.end(), ' '));
  }
  EXPECT_DOUBLE_EQ(fit.pieces_a_word, pieces / words);
  EXPECT_EQ(fit_bpe(little_corpus(), config).model, fit.model);
}

TEST(BpeTrainer, StopsWhereNothingStandsTwice) {
  PieceConfig config;
  config.vocabulary = 400;
  config.byte_fallback = true;
  config.longest_piece = 5;
  const SentencePieceModel model(fit_bpe(little_corpus(), config).model, "fitted");
  EXPECT_LT(model.size(), 400);
  EXPECT_EQ(model.decode(model.encode("the \u65e5")), "the \u65e5");
  config.vocabulary = 270;
  EXPECT_THROW(fit_bpe(little_corpus(), config), Error);
}

TEST(UnigramTrainer, SaysHowManyPiecesAreNeeded) {
  UnigramConfig config;
  config.vocabulary = 10;
  try {
    fit_unigram(little_corpus(), config);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("give at least --vocab"));
  }
  EXPECT_THROW(fit_unigram({" ", ""}, config), Error);
}

}  // namespace spoken_text_test
}  // namespace melete

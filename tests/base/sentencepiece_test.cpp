// SentencePiece models against what the library's own program (spm_encode 0.1.97) makes of the same texts.
#include "data/base/sentencepiece.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <sstream>

#include "core/base/error.h"
#include "temporary_folder.h"

namespace melete {
namespace sentencepiece_test {

using ::testing::HasSubstr;

const std::string kFolder = std::string(MELETE_SOURCE_DIR) + "/tests/base/sentencepiece/";

std::string field(int number, const std::string& bytes) {
  return std::string(1, static_cast<char>(number << 3 | 2)) + static_cast<char>(bytes.size()) + bytes;
}

std::string piece(const std::string& text, float score, char type = 1) {
  std::string bytes(4, '\0');
  std::memcpy(bytes.data(), &score, 4);
  return field(1, field(1, text) + "\x15" + bytes + "\x18" + type);
}

// unk 0; pieces a, b, ab, abc and the space
std::string tiny_model(float ab = -3, char type = 1) {
  return piece("<unk>", 0, 2) + piece("\u2581", -2) + piece("a", -2) + piece("b", -2) + piece("ab", ab) +
         piece("abc", -9) + field(2, std::string("\x18") + type);
}

std::string refusal(const std::string& bytes) {
  try {
    SentencePieceModel(bytes, "x.model");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(SentencePiece, SplitsAsTheLibraryDoes) {
  const SentencePieceModel model(testing::read_bytes(kFolder + "spiece.model"), "spiece.model");
  EXPECT_EQ(model.pad_id(), 0);
  EXPECT_EQ(model.end_id(), 1);
  EXPECT_EQ(model.unknown_id(), 2);
  std::ifstream cases(kFolder + "cases.tsv");
  int64_t compared = 0;
  for (std::string line; std::getline(cases, line); ++compared) {
    const size_t tab = line.rfind('\t');
    ASSERT_NE(tab, std::string::npos);
    std::vector<int64_t> wanted;
    std::istringstream ids(line.substr(tab + 1));
    for (int64_t id = 0; ids >> id;) wanted.push_back(id);
    EXPECT_EQ(model.encode(line.substr(0, tab)), wanted) << line;
  }
  EXPECT_GE(compared, 100);
  EXPECT_TRUE(model.encode("").empty());
  EXPECT_TRUE(model.encode("   ").empty());
  EXPECT_EQ(model.decode(model.encode("a train of  thought ")), "a train of thought");
  EXPECT_EQ(model.normalise("\xff!"), "\u2581\ufffd!");
}

TEST(SentencePiece, TakesTheMostLikelyPath) {
  const SentencePieceModel joined(tiny_model(-3), "x"), apart(tiny_model(-5), "x");
  EXPECT_EQ(joined.encode("ab"), (std::vector<int64_t>{1, 4}));
  EXPECT_EQ(apart.encode("ab"), (std::vector<int64_t>{1, 2, 3}));
  // c is only known inside abc; elsewhere it is unknown, and several in a row are one.
  EXPECT_EQ(joined.encode("abc"), (std::vector<int64_t>{1, 5}));
  EXPECT_EQ(joined.encode("accca"), (std::vector<int64_t>{1, 2, 0, 2}));
}

TEST(SentencePiece, JoinsPairsInTheOrderOfTheirScores) {
  const auto model = [](float ab, float bc) {
    return piece("<unk>", 0, 2) + piece("\u2581", -9) + piece("a", -9) + piece("b", -9) + piece("c", -9) +
           piece("ab", ab) + piece("bc", bc) + piece("abc", -7) + piece("bcc", -8) +
           field(2, std::string("\x18\x02"));
  };
  const SentencePieceModel first(model(-1, -2), "x"), second(model(-2, -1), "x");
  EXPECT_EQ(first.encode("abcc"), (std::vector<int64_t>{1, 7, 4}));   // ab, abc
  EXPECT_EQ(second.encode("abcc"), (std::vector<int64_t>{1, 7, 4}));  // bc, then abc is before bcc
  EXPECT_EQ(second.encode("bcc"), (std::vector<int64_t>{1, 8}));
  EXPECT_EQ(first.encode("ababb"), (std::vector<int64_t>{1, 5, 5, 3}));
  EXPECT_EQ(first.encode("axxb"), (std::vector<int64_t>{1, 2, 0, 3}));  // unknown ones in a row are one
  EXPECT_EQ(first.decode(first.encode("abc cab")), "abc cab");
}

TEST(SentencePiece, RefusesWhatItCannotUse) {
  EXPECT_THAT(refusal(""), HasSubstr("x.model"));
  EXPECT_THAT(refusal("some words, not a model"), HasSubstr("x.model"));
  EXPECT_THAT(refusal(tiny_model(-3, 3)), HasSubstr("unigram"));
  EXPECT_THAT(refusal(piece("", 0)), HasSubstr("empty"));
  const std::string whole = testing::read_bytes(kFolder + "spiece.model");
  for (size_t cut : {whole.size() - 1, whole.size() / 2, size_t{100}, size_t{3}}) {
    // What is left may be a whole model with fewer pieces; it must not be read past its end.
    try {
      SentencePieceModel(whole.substr(0, cut), "x.model").encode("a train of thought");
    } catch (const Error&) {
    }
  }
}

}  // namespace sentencepiece_test
}  // namespace melete

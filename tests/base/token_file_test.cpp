#include "io/base/token_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "core/base/error.h"
#include "core/base/random.h"
#include "io/base/file_content.h"
#include "io/base/opus.h"
#include "io/base/resample_stream.h"
#include "temporary_folder.h"

namespace melete {
namespace token_file_test {

using namespace testing;
using ::testing::HasSubstr;

TokenHeader header(int64_t quantizers = 3, int64_t codebook = 1024) {
  TokenHeader made;
  made.model = "00112233445566778899aabbccddeeff";
  made.model_name = "codec step 12";
  made.rate_hz = 16000;
  made.samples_per_frame = 320;
  made.quantizers = quantizers;
  made.codebook_size = codebook;
  made.source_rate_hz = 44100;
  return made;
}

std::string error_of(const std::string& path) {
  try {
    TokenFile file(path);
    (void)file.codes(0, file.frames());
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(TokenFile, GivesBackEveryCode) {
  TemporaryFolder folder;
  for (const int64_t codebook : {2, 3, 10, 256, 1000, 1024, 1 << 14, 1 << 24})
    for (const int64_t quantizers : {1, 3, 8}) {
      Rng rng(static_cast<uint64_t>(codebook * 100 + quantizers));
      std::vector<int64_t> codes;
      for (int64_t i = 0; i < 101 * quantizers; ++i) codes.push_back(rng.integer(0, codebook));
      TokenWriter writer(folder / "a.tokens", header(quantizers, codebook));
      // In uneven pieces.
      const std::span<const int64_t> all(codes);
      writer.add(all.first(static_cast<size_t>(quantizers)));
      writer.add(all.subspan(static_cast<size_t>(quantizers), 0));
      writer.add(all.subspan(static_cast<size_t>(quantizers)));
      writer.commit(101 * 320 - 7);
      const TokenFile file(folder / "a.tokens");
      EXPECT_EQ(file.frames(), 101);
      EXPECT_EQ(file.samples(), 101 * 320 - 7);
      EXPECT_EQ(file.codes(0, 101), codes);
      EXPECT_EQ(file.codes(40, 2),
                std::vector<int64_t>(codes.begin() + 40 * quantizers, codes.begin() + 42 * quantizers));
      EXPECT_EQ(file.header().model_name, "codec step 12");
      EXPECT_THROW(file.codes(100, 2), Error);
      EXPECT_THROW(file.codes(-1, 1), Error);
    }
}

TEST(TokenFile, WritesOnlyWholeAndSoundFiles) {
  TemporaryFolder folder;
  {
    TokenWriter writer(folder / "half.tokens", header());
    writer.add(std::vector<int64_t>{1, 2, 3});
    EXPECT_THROW(writer.add(std::vector<int64_t>{1, 2}), Error);
    EXPECT_THROW(writer.add(std::vector<int64_t>{1, 2, 1024}), Error);
    EXPECT_THROW(writer.add(std::vector<int64_t>{1, 2, -1}), Error);
    EXPECT_THROW(writer.commit(321), Error);
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

class BrokenTokens : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = folder_ / "x.tokens";
    TokenWriter writer(path_, header());
    std::vector<int64_t> codes(3 * 50);
    for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<int64_t>(i * 7 % 1024);
    writer.add(codes);
    writer.commit(50 * 320);
    good_ = read_bytes(path_);
  }
  std::string with_number(size_t at, uint32_t value) {
    std::string bytes = good_;
    std::memcpy(bytes.data() + at, &value, 4);
    write_bytes(path_, bytes);
    return error_of(path_);
  }

  TemporaryFolder folder_;
  std::string path_, good_;
};

TEST_F(BrokenTokens, EachKindHasItsOwnMessage) {
  EXPECT_EQ(error_of(path_), "");
  write_bytes(path_, good_.substr(0, 100));
  EXPECT_THAT(error_of(path_), HasSubstr("truncated"));
  write_bytes(path_, good_.substr(0, good_.size() - 5));
  EXPECT_THAT(error_of(path_), HasSubstr("truncated or damaged"));
  write_bytes(path_, "RIFF and so on");
  EXPECT_THAT(error_of(path_), HasSubstr("not a token file"));
  write_bytes(path_, "");
  EXPECT_THAT(error_of(path_), HasSubstr("empty"));
  EXPECT_THAT(with_number(8, 2), HasSubstr("version 2, this melete reads version 1; try updating"));
  EXPECT_THAT(with_number(12, 0xffffffff), HasSubstr("absurd header"));
  EXPECT_THAT(with_number(32, 0), HasSubstr("the sample rate"));
  EXPECT_THAT(with_number(36, 0xffffffff), HasSubstr("samples of a frame"));
  EXPECT_THAT(with_number(40, 0xffffffff), HasSubstr("codes of a frame"));
  EXPECT_THAT(with_number(44, 2), HasSubstr("do not split"));
  EXPECT_THAT(with_number(48, 0xffffffff), HasSubstr("the codebook's size"));
  EXPECT_THAT(with_number(52, 11), HasSubstr("bits"));
  EXPECT_THAT(with_number(good_.size() - 32, 0xffffffff), HasSubstr("frames"));
  EXPECT_THAT(with_number(good_.size() - 20, 0xffffffff), HasSubstr("cannot cover"));
}

TEST_F(BrokenTokens, EveryFlippedBitIsSeen) {
  for (size_t at = 0; at < good_.size(); ++at) {
    std::string bytes = good_;
    bytes[at] = static_cast<char>(bytes[at] ^ (1 << (at % 8)));
    write_bytes(path_, bytes);
    EXPECT_NE(error_of(path_), "") << at;
  }
}

TEST_F(BrokenTokens, EveryTruncationIsSeen) {
  for (size_t size = 0; size < good_.size(); ++size) {
    write_bytes(path_, good_.substr(0, size));
    EXPECT_NE(error_of(path_), "") << size;
  }
}

TEST_F(BrokenTokens, InspectTellsWhatIsInOne) {
  const FileContent content = read_file_content(path_);
  EXPECT_EQ(content.format, "tokens");
  bool seen = false;
  for (const auto& [name, text] : content.facts) seen = seen || text == "codec step 12";
  EXPECT_TRUE(seen);
}

TEST(FileContent, DifferencesByName) {
  TemporaryFolder folder;
  const auto write = [&](const std::string& name, std::vector<float> w, bool more) {
    std::vector<TensorBytes> tensors = {{"w", DType::f32, {3}, std::as_bytes(std::span(w))}};
    static const std::vector<int64_t> one{7};
    tensors.push_back({"same", DType::i64, {1}, std::as_bytes(std::span(one))});
    if (more) tensors.push_back({"more", DType::i64, {}, std::as_bytes(std::span(one))});
    write_safetensors(folder / name, tensors, {{"step", "3"}});
    return read_file_content(folder / name);
  };
  const FileContent a = write("a.safetensors", {1, 2, 3}, false),
                    b = write("b.safetensors", {1, 2, 5.5f}, true);
  int64_t equal = 0;
  const auto differences = compare_files(a, b, equal);
  EXPECT_EQ(equal, 1);
  ASSERT_EQ(differences.size(), 2u);
  EXPECT_EQ(differences[0].name, "more");
  EXPECT_EQ(differences[0].what, "only in the second");
  EXPECT_EQ(differences[1].largest, 2.5);
  EXPECT_EQ(differences[1].differing, 1);
}

TEST(ResampleStream, IsTheSameInPieces) {
  Rng rng(5);
  std::vector<float> wave(20011);
  for (float& sample : wave) sample = static_cast<float>(rng.uniform(-1, 1));
  for (const auto& [from, to] : {std::pair{44100, 16000}, {8000, 24000}, {16000, 16000}, {48000, 44100}}) {
    const std::vector<float> whole = Resampler(from, to).run(wave);
    ResampleStream stream(from, to);
    std::vector<float> pieces;
    for (size_t at = 0; at < wave.size();) {
      const size_t size = std::min<size_t>(static_cast<size_t>(rng.integer(1, 3000)), wave.size() - at);
      const auto made = stream.push(std::span(wave).subspan(at, size));
      pieces.insert(pieces.end(), made.begin(), made.end());
      at += size;
    }
    const auto rest = stream.finish();
    pieces.insert(pieces.end(), rest.begin(), rest.end());
    EXPECT_EQ(pieces, whole) << from << " -> " << to;
  }
}

TEST(Opus, IsAlignedAndNearItsRate) {
  for (const int rate : {16000, 22050, 48000}) {
    std::vector<float> wave(static_cast<size_t>(rate * 2));
    for (size_t i = 0; i < wave.size(); ++i) {
      const double t = static_cast<double>(i) / rate;
      wave[i] = static_cast<float>(0.3 * std::sin(6.28318530718 * (200 + 150 * t) * t));
    }
    const OpusResult result = through_opus(wave, rate, 24000);
    ASSERT_EQ(result.samples.size(), wave.size());
    EXPECT_GT(result.bits_per_second, 8000);
    EXPECT_LT(result.bits_per_second, 30000);
    // The best shift is none.
    const auto correlation = [&](int shift) {
      double sum = 0;
      for (size_t i = 2000; i + 2000 < wave.size(); ++i)
        sum += wave[i] * result.samples[static_cast<size_t>(static_cast<int>(i) + shift)];
      return sum;
    };
    for (const int shift : {-20, -5, -2, 2, 5, 20}) EXPECT_GT(correlation(0), correlation(shift)) << rate;
  }
}

}  // namespace token_file_test
}  // namespace melete

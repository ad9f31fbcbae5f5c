// Mutated SentencePiece models, read and used under sanitizers.
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "core/base/error.h"
#include "data/base/sentencepiece.h"
#include "mutate.h"

namespace melete {
namespace sentencepiece_hostile {

std::string field(int number, const std::string& bytes) {
  return std::string(1, static_cast<char>(number << 3 | 2)) + static_cast<char>(bytes.size()) + bytes;
}

std::string piece(const std::string& text, float score, char type) {
  std::string bytes(4, '\0');
  std::memcpy(bytes.data(), &score, 4);
  return field(1, field(1, text) + "\x15" + bytes + "\x18" + type);
}

// A character map of a few cells that makes "x" a space.
std::string model() {
  uint32_t cells[] = {0x400u, 0, 0, 0};
  std::string array(sizeof cells + 480, '\0');
  std::memcpy(array.data(), cells, sizeof cells);
  const uint32_t label = 'x' | 0x100u | (1u << 10), value = 0x80000000u;
  std::memcpy(array.data() + 4 * ('x' ^ 1), &label, 4);
  std::memcpy(array.data() + 4 * ('x' ^ 1 ^ 1), &value, 4);
  const auto size = static_cast<uint32_t>(array.size());
  std::string map(4, '\0');
  std::memcpy(map.data(), &size, 4);
  map += array + std::string(" \0", 2);
  const size_t length = map.size();
  std::string normaliser = "\x12";
  normaliser += static_cast<char>((length & 0x7f) | 0x80);
  normaliser += static_cast<char>(length >> 7);
  normaliser += map;
  std::string whole = piece("<unk>", 0, 2) + piece("\u2581", -2, 1) + piece("a", -2, 1) + piece("ab", -3, 1) +
                      piece("<s>", 0, 3) + piece("::", 0, 4) + piece("<0x61>", 0, 6) +
                      field(2, std::string("\x18\x01\xc0\x02\x00\xd0\x02\x01", 8));
  whole += "\x1a";
  whole += static_cast<char>((normaliser.size() & 0x7f) | 0x80);
  whole += static_cast<char>(normaliser.size() >> 7);
  return whole + normaliser;
}

TEST(HostileSentencePiece, MutatedModels) {
  const std::string good = model();
  EXPECT_NO_THROW(SentencePieceModel(good, "good").encode("abxa :: \xff\xe2\x96"));
  int64_t read = 0, refused = 0;
  for (uint64_t variant = 0; variant < 4000; ++variant) {
    try {
      const SentencePieceModel made(testing::mutate(good, variant), "mutated");
      const auto ids = made.encode("abxa :: \xff\xe2\x96 xx b");
      made.decode(ids);
      ++read;
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(read, 100);
  EXPECT_GT(refused, 100);
}

}  // namespace sentencepiece_hostile
}  // namespace melete

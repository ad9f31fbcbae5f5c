#include "data/word_tokenizer.h"

#include <fmt/format.h>

#include "core/base/random.h"
#include "io/base/checksum.h"

namespace melete {

namespace {

constexpr int64_t kFirstWord = 2;  // after padding and end

// Bytes of other alphabets count as letters.
bool in_word(unsigned char byte) {
  return (byte >= 'a' && byte <= 'z') || (byte >= '0' && byte <= '9') || byte >= 128;
}

}  // namespace

WordTokenizer::WordTokenizer() {
  Checksum sum;
  sum.add(std::string_view("words, hashed to 8192"));
  identity_ = sum.hex();
}

std::vector<int64_t> WordTokenizer::pieces(std::string_view text) const {
  std::vector<int64_t> ids;
  std::string word;
  const auto end_word = [&] {
    if (word.empty()) return;
    const auto places = static_cast<uint64_t>(vocabulary() - kFirstWord);
    ids.push_back(kFirstWord + static_cast<int64_t>(random_key(0, word) % places));
    word.clear();
  };
  for (const char each : text) {
    auto byte = static_cast<unsigned char>(each);
    if (byte >= 'A' && byte <= 'Z') byte = static_cast<unsigned char>(byte - 'A' + 'a');
    if (in_word(byte))
      word += static_cast<char>(byte);
    else
      end_word();
  }
  end_word();
  return ids;
}

std::string WordTokenizer::text(const std::vector<int64_t>& ids) const {
  std::string result;
  for (const int64_t id : ids)
    if (id >= kFirstWord) result += fmt::format("{}<{}>", result.empty() ? "" : " ", id);
  return result;
}

}  // namespace melete

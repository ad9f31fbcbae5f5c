#include "data/base/piece_fit.h"

#include <bit>
#include <map>

#include "core/base/error.h"
#include "data/base/unicode.h"

namespace melete {

namespace {

constexpr char32_t kSpace = U'\u2581';  // stands for a space inside pieces

// Protobuf's wire format, only as much as a model file has.
class Message {
 public:
  void integer(int field, int64_t value) {
    varint(static_cast<uint64_t>(field) << 3);
    varint(static_cast<uint64_t>(value));
  }
  void real(int field, float value) {
    varint((static_cast<uint64_t>(field) << 3) | 5);
    const auto bits = std::bit_cast<uint32_t>(value);
    for (int shift = 0; shift < 32; shift += 8) bytes_ += static_cast<char>(bits >> shift);
  }
  void text(int field, const std::string& value) {
    varint((static_cast<uint64_t>(field) << 3) | 2);
    varint(value.size());
    bytes_ += value;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  void varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
  }

  std::string bytes_;
};

enum PieceType { kNormal = 1, kUnknown = 2, kControl = 3, kByte = 6 };

}  // namespace

std::vector<CountedWord> counted_words(const std::vector<std::string>& texts) {
  std::map<std::u32string, double> counts;
  for (const std::string& text : texts) {
    std::u32string word;
    const auto close = [&] {
      if (!word.empty()) ++counts[kSpace + word];
      word.clear();
    };
    for (const char32_t point : code_points(text))
      if (is_space(point))
        close();
      else
        word += point;
    close();
  }
  std::vector<CountedWord> words;
  for (const auto& [text, count] : counts) words.push_back({text, count});
  require(!words.empty(), "[text-tokenizer] there is no text to fit pieces to");
  return words;
}

int64_t special_pieces(bool bytes) {
  return 3 + (bytes ? 256 : 0);
}

void require_room(const PieceConfig& config, int64_t characters) {
  const int64_t special = special_pieces(config.byte_fallback);
  require(config.vocabulary >= characters + special,
          "[text-tokenizer] the texts have {} different characters, and {} other pieces are needed: give at "
          "least --vocab {}",
          characters, special, characters + special);
}

void count_pieces(PieceFit& fit, const std::vector<CountedWord>& words,
                  const std::function<size_t(const CountedWord&)>& pieces) {
  double used = 0, count = 0;
  for (const CountedWord& word : words) {
    used += word.count * static_cast<double>(pieces(word));
    count += word.count;
  }
  fit.words = static_cast<int64_t>(count);
  fit.distinct_words = static_cast<int64_t>(words.size());
  fit.pieces_a_word = used / count;
}

std::string sentencepiece_file(const std::vector<std::pair<double, std::u32string>>& pieces, PieceKind kind,
                               bool bytes) {
  Message model;
  const auto add = [&](const std::string& text, double score, PieceType type) {
    Message piece;
    piece.text(1, text);
    piece.real(2, static_cast<float>(score));
    if (type != kNormal) piece.integer(3, type);
    model.text(1, piece.bytes());
  };
  add("<pad>", 0, kControl);
  add("</s>", 0, kControl);
  add("<unk>", 0, kUnknown);
  if (bytes)
    for (int byte = 0; byte < 256; ++byte) add(fmt::format("<0x{:02X}>", byte), 0, kByte);
  for (const auto& [score, text] : pieces) add(utf8(text), score, kNormal);
  Message trainer;
  trainer.integer(3, static_cast<int64_t>(kind));
  trainer.integer(4, static_cast<int64_t>(pieces.size()) + special_pieces(bytes));
  if (bytes) trainer.integer(35, 1);
  trainer.integer(40, 2);   // unknown
  trainer.integer(41, -1);  // begin: there is none
  trainer.integer(42, 1);   // end
  trainer.integer(43, 0);   // padding
  model.text(2, trainer.bytes());
  Message normaliser;
  normaliser.text(1, "identity");
  model.text(3, normaliser.bytes());
  return model.bytes();
}

}  // namespace melete

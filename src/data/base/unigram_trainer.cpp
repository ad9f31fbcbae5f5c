#include "data/base/unigram_trainer.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <unordered_map>

#include "core/base/error.h"
#include "data/base/unicode.h"

namespace melete {

namespace {

constexpr char32_t kSpace = U'\u2581';  // stands for a space inside pieces
constexpr double kNever = -std::numeric_limits<double>::infinity();
constexpr int64_t kSeedsPerPiece = 10;  // pieces to begin with, for each that is wanted

struct Word {
  std::u32string text;  // with its leading space
  double count = 0;
};

using Scores = std::unordered_map<std::u32string, double>;  // log probabilities of pieces

// From a place of a word to a later one by one piece.
struct Step {
  size_t from, to;
  const std::u32string* piece;
  double score;
};

class Lattice {
 public:
  // without: a piece that may not be used; null: all may
  Lattice(const std::u32string& word, const Scores& scores, size_t longest,
          const std::u32string* without = nullptr)
      : length_(word.size()) {
    for (size_t from = 0; from < length_; ++from)
      for (size_t to = from + 1; to <= std::min(length_, from + longest); ++to) {
        const auto found = scores.find(word.substr(from, to - from));
        if (found == scores.end() || (without != nullptr && found->first == *without)) continue;
        steps_.push_back({from, to, &found->first, found->second});
      }
  }

  // Adds each piece's expected number of uses to `counts`, times `weight`; the word's log probability.
  double expect(double weight, Scores& counts) const {
    std::vector<double> before(length_ + 1, kNever), after(length_ + 1, kNever);
    before[0] = after[length_] = 0;
    for (const Step& step : steps_) before[step.to] = added(before[step.to], before[step.from] + step.score);
    for (auto step = steps_.rbegin(); step != steps_.rend(); ++step)
      after[step->from] = added(after[step->from], after[step->to] + step->score);
    const double whole = before[length_];
    if (whole == kNever) return kNever;
    for (const Step& step : steps_) {
      const double path = before[step.from] + step.score + after[step.to];
      if (path != kNever) counts[*step.piece] += weight * std::exp(path - whole);
    }
    return whole;
  }

  // The likeliest pieces in order; empty where there is no way through.
  std::vector<const std::u32string*> best() const {
    std::vector<double> score(length_ + 1, kNever);
    std::vector<const Step*> last(length_ + 1, nullptr);
    score[0] = 0;
    for (const Step& step : steps_)
      if (score[step.from] + step.score > score[step.to]) {
        score[step.to] = score[step.from] + step.score;
        last[step.to] = &step;
      }
    std::vector<const std::u32string*> pieces;
    for (size_t at = length_; at > 0; at = last[at]->from) {
      if (last[at] == nullptr) return {};
      pieces.push_back(last[at]->piece);
    }
    std::reverse(pieces.begin(), pieces.end());
    return pieces;
  }

 private:
  static double added(double a, double b) {  // log(exp(a) + exp(b))
    if (a < b) std::swap(a, b);
    return b == kNever ? a : a + std::log1p(std::exp(b - a));
  }

  size_t length_;
  std::vector<Step> steps_;  // by where they begin, so that a place's value is known when it is left
};

std::vector<Word> words_of(const std::vector<std::string>& texts) {
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
  std::vector<Word> words;
  for (const auto& [text, count] : counts) words.push_back({text, count});
  return words;
}

// Stretches of words that come more than once, the largest savings first, and every single character.
Scores seeds(const std::vector<Word>& words, size_t longest, int64_t wanted) {
  std::map<std::u32string, double> counts;
  for (const Word& word : words)
    for (size_t from = 0; from < word.text.size(); ++from)
      for (size_t length = 1; length <= std::min(longest, word.text.size() - from); ++length)
        counts[word.text.substr(from, length)] += word.count;
  std::vector<std::pair<double, const std::u32string*>> long_ones;
  Scores result;
  for (const auto& [text, count] : counts) {
    if (text.size() == 1)
      result[text] = count;
    else if (count >= 2)
      long_ones.emplace_back(-count * static_cast<double>(text.size()), &text);
  }
  std::stable_sort(long_ones.begin(), long_ones.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [saving, text] : long_ones) {
    if (static_cast<int64_t>(result.size()) >= wanted) break;
    result[*text] = counts.at(*text);
  }
  double total = 0;
  for (const auto& [text, count] : result) total += count;
  for (auto& [text, score] : result) score = std::log(score / total);
  return result;
}

// One round of expectation and maximisation; long pieces that are hardly used go.
void improve(Scores& scores, const std::vector<Word>& words, size_t longest) {
  constexpr double kHardlyUsed = 0.5;
  Scores counts;
  for (const Word& word : words) Lattice(word.text, scores, longest).expect(word.count, counts);
  double total = 0;
  std::erase_if(
      scores, [&](const auto& piece) { return piece.first.size() > 1 && counts[piece.first] < kHardlyUsed; });
  for (const auto& [text, score] : scores) total += std::max(counts[text], kHardlyUsed);
  for (auto& [text, score] : scores) score = std::log(std::max(counts[text], kHardlyUsed) / total);
}

// What the texts would lose without each long piece, the least first; ties by text, so that any machine and
// any run gives the same.
std::vector<std::pair<double, std::u32string>> losses(const Scores& scores, const std::vector<Word>& words,
                                                      size_t longest) {
  std::map<std::u32string, double> used;
  for (const Word& word : words)
    for (const std::u32string* piece : Lattice(word.text, scores, longest).best()) used[*piece] += word.count;
  std::vector<std::pair<double, std::u32string>> result;
  for (const auto& [text, score] : scores) {
    if (text.size() == 1) continue;
    double loss = 0;
    if (const auto count = used.find(text); count != used.end()) {
      double instead = 0;
      for (const std::u32string* piece : Lattice(text, scores, longest, &text).best())
        instead += scores.at(*piece);
      loss = count->second * (score - instead);
    }
    result.emplace_back(loss, text);
  }
  std::sort(result.begin(), result.end());
  return result;
}

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

std::string model_file(const std::vector<std::pair<double, std::u32string>>& pieces, bool bytes) {
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
  trainer.integer(3, 1);  // unigram
  trainer.integer(4, static_cast<int64_t>(pieces.size()) + 3 + (bytes ? 256 : 0));
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

}  // namespace

UnigramFit fit_unigram(const std::vector<std::string>& texts, const UnigramConfig& config,
                       const std::function<void(int64_t pieces)>& progress) {
  const std::vector<Word> words = words_of(texts);
  require(!words.empty(), "[text-tokenizer] there is no text to fit pieces to");
  const auto longest = static_cast<size_t>(std::max<int64_t>(1, config.longest_piece));
  const int64_t special = 3 + (config.byte_fallback ? 256 : 0), wanted = config.vocabulary - special;
  Scores scores = seeds(words, longest, std::max<int64_t>(1000, wanted * kSeedsPerPiece));
  UnigramFit fit;
  for (const auto& [text, score] : scores) fit.characters += text.size() == 1;
  require(wanted >= fit.characters,
          "[text-tokenizer] the texts have {} different characters, and {} other pieces are needed: give at "
          "least --vocab {}",
          fit.characters, special, fit.characters + special);
  while (true) {
    for (int64_t i = 0; i < config.iterations; ++i) improve(scores, words, longest);
    const auto size = static_cast<int64_t>(scores.size());
    if (progress) progress(size);
    if (size <= wanted) break;
    const auto left =
        std::max(wanted, static_cast<int64_t>(std::floor(static_cast<double>(size) * config.kept_share)));
    const auto ranked = losses(scores, words, longest);
    for (int64_t i = 0; i < size - left; ++i) scores.erase(ranked[static_cast<size_t>(i)].second);
  }

  std::vector<std::pair<double, std::u32string>> pieces;
  for (const auto& [text, score] : scores) pieces.emplace_back(score, text);
  std::sort(pieces.begin(), pieces.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  });
  double used = 0, count = 0;
  for (const Word& word : words) {
    used += word.count * static_cast<double>(Lattice(word.text, scores, longest).best().size());
    count += word.count;
  }
  fit.model = model_file(pieces, config.byte_fallback);
  fit.words = static_cast<int64_t>(count);
  fit.distinct_words = static_cast<int64_t>(words.size());
  fit.pieces_a_word = used / count;
  return fit;
}

}  // namespace melete

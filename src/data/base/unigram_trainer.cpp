#include "data/base/unigram_trainer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <unordered_map>

#include "core/base/error.h"

namespace melete {

namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();
constexpr int64_t kSeedsPerPiece = 10;  // pieces to begin with, for each that is wanted

using Word = CountedWord;
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

}  // namespace

PieceFit fit_unigram(const std::vector<std::string>& texts, const UnigramConfig& config,
                     const std::function<void(int64_t pieces)>& progress) {
  const std::vector<Word> words = counted_words(texts);
  const auto longest = static_cast<size_t>(std::max<int64_t>(1, config.longest_piece));
  const int64_t wanted = config.vocabulary - special_pieces(config.byte_fallback);
  Scores scores = seeds(words, longest, std::max<int64_t>(1000, wanted * kSeedsPerPiece));
  PieceFit fit;
  for (const auto& [text, score] : scores) fit.characters += text.size() == 1;
  require_room(config, fit.characters);
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
  fit.model = sentencepiece_file(pieces, PieceKind::unigram, config.byte_fallback);
  count_pieces(fit, words,
               [&](const Word& word) { return Lattice(word.text, scores, longest).best().size(); });
  return fit;
}

}  // namespace melete

#include "data/base/bpe_trainer.h"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

namespace melete {

namespace {

using Symbols = std::vector<std::u32string>;

// What may become a piece: a text that two neighbours make, whichever two, since that is how it is used.
struct Candidate {
  double count = 0;
  std::map<size_t, int64_t> words;  // where it stands, and how often there
};

class Merging {
 public:
  Merging(const std::vector<CountedWord>& words, size_t longest) : words_(words), longest_(longest) {
    for (const CountedWord& word : words) {
      Symbols& symbols = symbols_.emplace_back();
      for (const char32_t letter : word.text) symbols.emplace_back(1, letter);
    }
    for (size_t word = 0; word < words.size(); ++word) count(word, 1);
  }

  // The commonest pair becomes a piece; of several as common the shortest, then the first by its letters, so
  // that any machine gives the same. Empty when none stands there twice.
  std::u32string merge() {
    if (order_.empty() || -order_.begin()->count < 2) return {};
    const std::u32string piece = order_.begin()->text;
    rank_.emplace(piece, rank_.size());
    const std::map<size_t, int64_t> where = candidates_.at(piece).words;
    for (const auto& [word, times] : where) {
      count(word, -1);
      join(symbols_[word]);
      count(word, 1);
    }
    return piece;
  }

  size_t pieces_of(size_t word) const { return symbols_[word].size(); }

 private:
  struct Place {
    double count;  // negative: the commonest first
    std::u32string text;
    bool operator<(const Place& other) const {
      if (count != other.count) return count < other.count;
      return text.size() != other.text.size() ? text.size() < other.text.size() : text < other.text;
    }
  };

  // Pairs that are pieces already are one, those of the first pieces first: as encoding does it.
  void join(Symbols& symbols) const {
    while (true) {
      size_t best = symbols.size(), best_rank = rank_.size();
      for (size_t i = 0; i + 1 < symbols.size(); ++i)
        if (const auto found = rank_.find(symbols[i] + symbols[i + 1]);
            found != rank_.end() && found->second < best_rank) {
          best = i;
          best_rank = found->second;
        }
      if (best == symbols.size()) return;
      symbols[best] += symbols[best + 1];
      symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    }
  }

  // Adds a word's pairs to the candidates, or takes them away.
  void count(size_t word, int64_t sign) {
    const Symbols& symbols = symbols_[word];
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const std::u32string text = symbols[i] + symbols[i + 1];
      if (text.size() > longest_) continue;
      Candidate& candidate = candidates_[text];
      order_.erase({-candidate.count, text});
      candidate.count += static_cast<double>(sign) * words_[word].count;
      if ((candidate.words[word] += sign) == 0) candidate.words.erase(word);
      if (candidate.words.empty())
        candidates_.erase(text);
      else
        order_.insert({-candidate.count, text});
    }
  }

  const std::vector<CountedWord>& words_;
  size_t longest_;
  std::vector<Symbols> symbols_;  // of each word
  std::unordered_map<std::u32string, Candidate> candidates_;
  std::set<Place> order_;
  std::unordered_map<std::u32string, size_t> rank_;  // of the pieces that there are
};

// The commonest first.
std::vector<std::u32string> characters_of(const std::vector<CountedWord>& words) {
  std::map<char32_t, double> counts;
  for (const CountedWord& word : words)
    for (const char32_t letter : word.text) counts[letter] += word.count;
  std::vector<std::pair<double, char32_t>> order;
  for (const auto& [letter, count] : counts) order.emplace_back(-count, letter);
  std::sort(order.begin(), order.end());
  std::vector<std::u32string> characters;
  for (const auto& [count, letter] : order) characters.emplace_back(1, letter);
  return characters;
}

}  // namespace

PieceFit fit_bpe(const std::vector<std::string>& texts, const PieceConfig& config) {
  const std::vector<CountedWord> words = counted_words(texts);
  const std::vector<std::u32string> characters = characters_of(words);
  PieceFit fit;
  fit.characters = static_cast<int64_t>(characters.size());
  require_room(config, fit.characters);
  const int64_t wanted = config.vocabulary - special_pieces(config.byte_fallback) - fit.characters;
  Merging merging(words, static_cast<size_t>(std::max<int64_t>(1, config.longest_piece)));
  // Scores fall from piece to piece: whoever encodes joins in this order. Single characters come last.
  std::vector<std::pair<double, std::u32string>> pieces;
  const auto add = [&](const std::u32string& text) {
    pieces.emplace_back(-static_cast<double>(pieces.size()), text);
  };
  while (static_cast<int64_t>(pieces.size()) < wanted) {
    const std::u32string piece = merging.merge();
    if (piece.empty()) break;
    add(piece);
  }
  for (const std::u32string& character : characters) add(character);
  fit.model = sentencepiece_file(pieces, PieceKind::bpe, config.byte_fallback);
  count_pieces(fit, words, [&](const CountedWord& word) {
    return merging.pieces_of(static_cast<size_t>(&word - words.data()));
  });
  return fit;
}

}  // namespace melete

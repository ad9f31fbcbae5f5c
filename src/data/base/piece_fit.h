// What fitting pieces of words to texts begins and ends with, whichever way they are chosen: words with their
// counts, and a .model file that SentencePiece itself reads, too.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace melete {

struct PieceConfig {
  int64_t vocabulary = 1000;   // padding, end, unknown and bytes included
  bool byte_fallback = false;  // 256 pieces for the bytes of characters that the texts do not have
  int64_t longest_piece = 16;  // characters
};

struct PieceFit {
  std::string model;  // bytes of the .model file: padding 0, end 1, unknown 2
  int64_t words = 0, distinct_words = 0, characters = 0;  // of the texts; characters: different ones
  double pieces_a_word = 0;
};

struct CountedWord {
  std::u32string text;  // with its leading space, which U+2581 stands for
  double count = 0;
};

// The different words of the texts in order of their letters; an Error when there are none.
std::vector<CountedWord> counted_words(const std::vector<std::string>& texts);

// Pieces that are no text: padding, end, unknown, and the bytes.
int64_t special_pieces(bool bytes);
// An Error unless the vocabulary has room for every single character.
void require_room(const PieceConfig& config, int64_t characters);

// How many words there were, and of how many pieces: `pieces` tells the number for one.
void count_pieces(PieceFit& fit, const std::vector<CountedWord>& words,
                  const std::function<size_t(const CountedWord&)>& pieces);

enum class PieceKind { unigram = 1, bpe = 2 };  // as the file says it
// pieces: score and text, in the order of their ids
std::string sentencepiece_file(const std::vector<std::pair<double, std::u32string>>& pieces, PieceKind kind,
                               bool bytes);

}  // namespace melete

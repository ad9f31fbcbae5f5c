// Fits a SentencePiece model to texts: pieces with probabilities under which the texts are likeliest (Kudo
// 2018, "Subword Regularization"). Written as a .model file that SentencePiece itself reads, too.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace melete {

struct UnigramConfig {
  int64_t vocabulary = 1000;   // padding, end, unknown and bytes included
  bool byte_fallback = false;  // 256 pieces for the bytes of characters that the texts do not have
  int64_t longest_piece = 16;  // characters
  int64_t iterations = 2;      // of expectation and maximisation between two rounds of leaving pieces out
  double kept_share = 0.75;    // of the pieces, in such a round
};

struct UnigramFit {
  std::string model;  // bytes of the .model file: padding 0, end 1, unknown 2
  int64_t words = 0, distinct_words = 0, characters = 0;  // of the texts; characters: different ones
  double pieces_a_word = 0;
};

// texts: UTF-8; broken bytes become U+FFFD, any white space is a space. progress: pieces that are left.
UnigramFit fit_unigram(const std::vector<std::string>& texts, const UnigramConfig& config,
                       const std::function<void(int64_t pieces)>& progress = {});

}  // namespace melete

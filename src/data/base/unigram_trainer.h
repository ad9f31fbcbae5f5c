// Fits a SentencePiece model to texts: pieces with probabilities under which the texts are likeliest (Kudo
// 2018, "Subword Regularization"). Written as a .model file that SentencePiece itself reads, too.
#pragma once

#include <functional>

#include "data/base/piece_fit.h"

namespace melete {

struct UnigramConfig : PieceConfig {
  int64_t iterations = 2;    // of expectation and maximisation between two rounds of leaving pieces out
  double kept_share = 0.75;  // of the pieces, in such a round
};

// texts: UTF-8; broken bytes become U+FFFD, any white space is a space. progress: pieces that are left.
PieceFit fit_unigram(const std::vector<std::string>& texts, const UnigramConfig& config,
                     const std::function<void(int64_t pieces)>& progress = {});

}  // namespace melete

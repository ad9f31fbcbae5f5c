// Fits a SentencePiece model to texts by byte pair encoding (Sennrich et al. 2016): the two neighbours that
// stand together most often become one piece, again and again, from single characters on.
#pragma once

#include "data/base/piece_fit.h"

namespace melete {

// texts: UTF-8; broken bytes become U+FFFD, any white space is a space.
PieceFit fit_bpe(const std::vector<std::string>& texts, const PieceConfig& config);

}  // namespace melete

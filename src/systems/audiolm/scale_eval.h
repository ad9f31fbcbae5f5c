// Whether a model's music stays in the scale of its prompt, measured on pieces whose scale the synthesizer
// knows.
#pragma once

#include <string>
#include <vector>

#include "systems/audiolm/audiolm.h"

namespace melete {

struct TonalPiece {
  at::Tensor wave;         // [samples]
  std::vector<int> scale;  // pitch classes, 0 being C
};

// The first `count` pieces of the music synthesizer's stream in which every part has a pitch: no drums.
std::vector<TonalPiece> tonal_pieces(uint64_t seed, int64_t count, int64_t rate_hz, double seconds);

// Of some sounds, one a piece.
struct ScaleFigure {
  std::string what;
  double own = 0;     // share of what sounds that is in its own piece's scale
  double others = 0;  // the same sounds in the other pieces' scales: what one gets that ignores its prompt
  double error = 0;   // standard error of own - others over the pieces
};

// waves [pieces, samples]
ScaleFigure scale_figure(const std::string& what, const at::Tensor& waves, int64_t rate_hz,
                         const std::vector<TonalPiece>& pieces);

// Continuations of each piece's beginning, beside what the piece itself goes on with: as it is, and through
// the codec, which is the most that a model could reach. Of the request, all but prompt and batch counts;
// pieces are at rate_hz.
std::vector<ScaleFigure> eval_scale(AudioLm& model, const std::vector<TonalPiece>& pieces, int64_t rate_hz,
                                    double prompt_seconds, AudioLmRequest request);

}  // namespace melete

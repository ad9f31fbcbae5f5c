// Whether a model's music stays in the scale of its prompt and keeps its beat, measured on pieces of which
// the synthesizer knows both.
#pragma once

#include <string>
#include <vector>

#include "systems/audiolm/audiolm.h"

namespace melete {

struct TonalPiece {
  at::Tensor wave;         // [samples]
  std::vector<int> scale;  // pitch classes, 0 being C
  double beat_seconds = 0;
};

// The first `count` pieces of the music synthesizer's stream in which every part has a pitch: no drums.
std::vector<TonalPiece> tonal_pieces(uint64_t seed, int64_t count, int64_t rate_hz, double seconds);

// A figure of some sounds, one a piece, that is high where a sound fits its piece.
struct FitToPiece {
  double own = 0;     // of each sound and its own piece
  double others = 0;  // of the same sounds and the other pieces: what one gets that ignores its prompt
  double error = 0;   // standard error of own - others over the pieces
};

struct ScaleFigure {
  std::string what;
  FitToPiece scale;  // share of what sounds that is in the piece's scale (losses/tonality.h)
  FitToPiece beat;   // how alike onsets are to those a beat of the piece later (losses/beat.h)
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

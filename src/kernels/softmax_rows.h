// Rows of attention scores to weights and back, each in one pass over memory: scale, bias, hidden keys and
// softmax. float32 on the CPU.
#pragma once

#include <cstdint>
#include <limits>

namespace melete {

// The score of a hidden key. Not -inf: a row whose keys are all hidden has weights, not NaN.
constexpr float kUnseen = -std::numeric_limits<float>::max();

struct ScoreRow {
  int64_t seen = 0;                 // keys [0, seen) can be looked at,
  int64_t width = 0;                // those up to width, a multiple of 16, get weight 0
  float scale = 1;                  // of the scores
  const float* bias = nullptr;      // [seen], added to them; null: none
  const uint8_t* hidden = nullptr;  // [seen], not 0: not looked at either; null: all are
};

// scores [width] become weights
void scores_to_weights(const ScoreRow& row, float* scores);

// gradient [width] of the weights becomes that of the scores; what it is before their scale is added to
// bias_gradient [seen] where that is not null.
void weights_to_scores_gradient(const ScoreRow& row, const float* weights, float* gradient,
                                float* bias_gradient);

}  // namespace melete

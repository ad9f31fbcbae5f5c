#include "kernels/softmax_rows.h"

#include "kernels/lanes.h"
#include "kernels/panel_product.h"
#include "kernels/vector_targets.h"

namespace melete {

MELETE_VECTOR_TARGETS
void scores_to_weights(const ScoreRow& row, float* scores) {
  const int64_t n = row.seen;
  const float scale = row.scale;
  if (row.bias)
    for (int64_t i = 0; i < n; ++i) scores[i] = scores[i] * scale + row.bias[i];
  else
    for (int64_t i = 0; i < n; ++i) scores[i] *= scale;
  if (row.hidden)
    for (int64_t i = 0; i < n; ++i) scores[i] = row.hidden[i] ? kUnseen : scores[i];
  const int64_t whole = round_up(n, kLanes);  // no loop over single numbers at the end
  for (int64_t i = n; i < whole; ++i) scores[i] = -std::numeric_limits<float>::infinity();
  softmax_in_place(scores, whole);
  for (int64_t i = whole; i < row.width; ++i) scores[i] = 0;
}

MELETE_VECTOR_TARGETS
void weights_to_scores_gradient(const ScoreRow& row, const float* weights, float* gradient,
                                float* bias_gradient) {
  const int64_t n = row.seen, whole = round_up(n, kLanes);  // up to there weights are 0
  const float scale = row.scale;
  const float mean = sum_over(whole, [&](int64_t i) { return weights[i] * gradient[i]; });
  for (int64_t i = 0; i < whole; ++i) gradient[i] = weights[i] * (gradient[i] - mean);
  if (row.hidden)
    for (int64_t i = 0; i < n; ++i) gradient[i] = row.hidden[i] ? 0 : gradient[i];
  if (bias_gradient)
    for (int64_t i = 0; i < n; ++i) bias_gradient[i] += gradient[i];
  for (int64_t i = 0; i < whole; ++i) gradient[i] *= scale;
  for (int64_t i = whole; i < row.width; ++i) gradient[i] = 0;
}

}  // namespace melete

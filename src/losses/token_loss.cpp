#include "losses/token_loss.h"

namespace melete {

TokenLoss token_loss(const at::Tensor& logits, const at::Tensor& labels) {
  constexpr int64_t kIgnored = -100;
  const at::Tensor rows = logits.reshape({-1, logits.size(-1)}).to(at::kFloat);
  const at::Tensor wanted = labels.flatten(), counts = wanted.ge(0);
  TokenLoss result;
  result.loss = at::cross_entropy_loss(rows, wanted.masked_fill(counts.logical_not(), kIgnored), {},
                                       at::Reduction::Mean, kIgnored);
  const at::NoGradGuard no_grad;
  result.count = counts.sum();
  result.accuracy =
      rows.argmax(-1).eq(wanted).logical_and_(counts).sum().to(at::kFloat) / result.count.clamp_min(1);
  return result;
}

}  // namespace melete

// Cross entropy over tokens, and the share that was guessed right.
#pragma once

#include <ATen/ATen.h>

namespace melete {

struct TokenLoss {
  at::Tensor loss;      // mean over the tokens that count
  at::Tensor accuracy;  // of the likeliest guess, without gradient
  at::Tensor count;     // tokens that count, int64
};

// logits [..., classes], labels int64 [...]; negative labels do not count
TokenLoss token_loss(const at::Tensor& logits, const at::Tensor& labels);

}  // namespace melete

// Speculative decoding (Leviathan et al. 2023): a quick model drafts several tokens, the real one judges them
// all at once. What is kept is distributed exactly as if the real one had drawn it alone.
#pragma once

#include <ATen/ATen.h>

namespace melete {

class Draws;

struct DraftVerdict {
  at::Tensor accepted;  // int64 [rows]: how many of the drafts stand
  at::Tensor next;      // int64 [rows]: the token after those, from the real model
};

// drafts int64 [rows, n], drawn from `quick` [rows, n, classes]; `real` [rows, n + 1, classes] are the
// probabilities before each of them and after the last. lenience below 1 accepts more than is exact.
DraftVerdict judge_samples(const at::Tensor& real, const at::Tensor& quick, const at::Tensor& drafts,
                           Draws& draws, double lenience = 1);

// The same where always the likeliest is taken: a draft stands if it is that. logits [rows, n + 1, classes]
DraftVerdict judge_greedy(const at::Tensor& logits, const at::Tensor& drafts);

}  // namespace melete

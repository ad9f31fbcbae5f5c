// Sequences of one length at the pace of another.
#pragma once

#include <ATen/ATen.h>

namespace melete::voicebox {

// Linear interpolation over positions, each row by its own lengths: the first from_lengths[row] of its
// positions become to_lengths[row]. What comes after them repeats the last.
// x [batch, n, dim], lengths int64 [batch] -> [batch, frames, dim]
at::Tensor stretch(const at::Tensor& x, const at::Tensor& from_lengths, const at::Tensor& to_lengths,
                   int64_t frames);

// The same of ids, between which there is nothing: each frame has the nearest one's; frames that come after
// to_lengths have -1. tokens int64 [batch, n] -> [batch, frames]
at::Tensor stretch_tokens(const at::Tensor& tokens, const at::Tensor& from_lengths,
                          const at::Tensor& to_lengths, int64_t frames);

// A mask at the pace of `frames`: true wherever a true position has a share. bool [batch, n] -> [batch,
// frames]
at::Tensor stretch_mask(const at::Tensor& mask, int64_t frames);

}  // namespace melete::voicebox

// Which frames count, which are hidden, which rows go without their condition.
#pragma once

#include <ATen/ATen.h>

namespace melete {
class Draws;
}

namespace melete::voicebox {

// The first so many positions of each row: lengths int64 [batch] -> bool [batch, frames]
at::Tensor first_frames(const at::Tensor& lengths, int64_t frames);

// How many positions of each row are true; all where `valid` is undefined. -> int64 [batch]
at::Tensor row_lengths(const at::Tensor& valid, int64_t batch, int64_t frames, const at::Device& device);

// One stretch of each row, a share of its length between low and high, anywhere in it.
// lengths int64 [batch] -> bool [batch, frames]
at::Tensor span_mask(const at::Tensor& lengths, int64_t frames, double low, double high, Draws& draws);

// Each with that probability; 0 and 1 need no draw. -> bool of that shape
at::Tensor chance_mask(at::IntArrayRef shape, double probability, const char* what, Draws& draws);

}  // namespace melete::voicebox

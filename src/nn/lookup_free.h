// The entropy terms of lookup-free quantization (Yu et al. 2023), where every channel is one bit and a
// frame's channels say how likely it takes each of the 2^bits codes.
#pragma once

#include <ATen/ATen.h>

namespace melete {

struct LookupFreeEntropy {
  at::Tensor of_frames;  // scalar: mean entropy of one frame's choice; low when it is confident
  at::Tensor of_use;     // scalar: entropy of all frames' mean choice; high when codes are used evenly
};

// x [rows, codebooks, bits], codebook [2^bits, bits] of +-scale: softmax over all codes. Logarithms are cut
// off at 1e-5 in both terms, as vector-quantize-pytorch does.
LookupFreeEntropy dense_entropy(const at::Tensor& x, const at::Tensor& codebook, double sharpness);

// The same without a row of all codes for every frame. A frame's bits are independent, so its entropy is the
// sum of theirs (and needs no cut-off), and the mean choice is one product of two tables of 2^(bits / 2).
LookupFreeEntropy factorised_entropy(const at::Tensor& x, double sharpness, double scale);

}  // namespace melete

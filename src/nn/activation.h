// Activations that LibTorch gets wrong or that several models share.
#pragma once

#include <ATen/ATen.h>

namespace melete {

// Exact (erf) GELU. Debian's LibTorch returns uninitialised memory as its gradient when the incoming gradient
// is not contiguous; this one does not.
at::Tensor gelu(const at::Tensor& x);

// Splits the last dimension in two halves (value, gate): value * gelu(gate).
at::Tensor gated_gelu(const at::Tensor& x);

}  // namespace melete

// Activations that LibTorch gets wrong or that several models share.
#pragma once

#include <ATen/ATen.h>

#include "kernels/gated_gelu.h"

namespace melete {

// Exact (erf) GELU. Debian's LibTorch returns uninitialised memory as its gradient when the incoming gradient
// is not contiguous; this one does not.
at::Tensor gelu(const at::Tensor& x);

// value * gelu(gate), the two halves of the last dimension, in either order.
at::Tensor gated_gelu(const at::Tensor& x, GateOrder order);

}  // namespace melete

// The product of rows with a layer's weights that every transformer here is made of.
#pragma once

#include <ATen/ATen.h>

namespace melete {

// x [..., in], weight [out, in], bias [out] or undefined -> [..., out]. What at::linear gives, by the quicker
// product where there is one (kernels/matrix_product.h). Under autocast to bf16 on a CPU only the factors are
// rounded and the result is float32 (kernels/bf16_product.h), so that what follows has its own kernels.
at::Tensor dense(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

}  // namespace melete

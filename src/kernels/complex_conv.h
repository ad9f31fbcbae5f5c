// Complex 2-d convolution by three real ones instead of four (Gauss): with s = re + im of the input,
//   t1 = s * Wr,  t2 = re * (Wi - Wr),  t3 = im * (Wr + Wi),  so  re' = t1 - t3,  im' = t1 + t2.
// Its gradients have the same shape and take three real convolutions each as well. In fp32 on the CPU the
// common kernels go by minimal filtering (kernels/minimal_filter.h).
#pragma once

#include <array>

#include "kernels/complex_pair.h"

namespace melete {

// weight [out, in, height, width, (re, im)], bias [out, (re, im)]. Differentiable twice.
ComplexPair complex_conv2d(const ComplexPair& x, const at::Tensor& weight, const at::Tensor& bias,
                           std::array<int64_t, 2> stride, std::array<int64_t, 2> padding);

// By four real convolutions and LibTorch's own gradients: what tests compare with.
ComplexPair complex_conv2d_reference(const ComplexPair& x, const at::Tensor& weight, const at::Tensor& bias,
                                     std::array<int64_t, 2> stride, std::array<int64_t, 2> padding);

}  // namespace melete

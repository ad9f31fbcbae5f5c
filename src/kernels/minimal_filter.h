// Complex convolutions of 3 taps (stride 1) or 4 taps (stride 2) per axis in fp32 by minimal filtering: two
// to four times fewer multiplications than the sum over taps, by transforms along both axes. A strided axis
// is split into its two phases of 2 taps, which add up (forward) or alternate (input's gradient). Every
// product of complex numbers is three real ones (Gauss), between the transforms.
#pragma once

#include "kernels/complex_pair.h"
#include "kernels/conv_geometry.h"

namespace melete {

// Whether the functions below take this: fp32 on the CPU, kernel, stride and channels that they know.
// weight [out, in, height, width, (re, im)]
bool minimal_filter_fits(const at::Tensor& weight, const ConvGeometry& geometry);

// x [batch, in, ...] and gradient [batch, out, ...] are channels-last; bias [out, (re, im)].
ComplexPair minimal_filter_conv2d(const ComplexPair& x, const at::Tensor& weight, const at::Tensor& bias,
                                  const ConvGeometry& geometry);
// size: height and width of the convolution's input
ComplexPair minimal_filter_input_gradient(const ComplexPair& gradient, const at::Tensor& weight,
                                          std::array<int64_t, 2> size, const ConvGeometry& geometry);
at::Tensor minimal_filter_weight_gradient(const ComplexPair& gradient, const ComplexPair& x,
                                          const at::Tensor& weight, const ConvGeometry& geometry);

}  // namespace melete

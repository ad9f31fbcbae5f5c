// Complex convolutions of a single channel in fp32, of stride 1: the first layer over a spectrum. Windows of
// the picture, its two parts side by side, are read in place by frame_product, and so are those of the
// gradient.
#pragma once

#include "kernels/complex_pair.h"
#include "kernels/conv_geometry.h"

namespace melete {

// Whether the functions below take this: fp32 on the CPU. weight [out, 1, height, width, (re, im)]
bool one_channel_fits(const at::Tensor& weight, const ConvGeometry& geometry);

// x [batch, 1, height, width]; gradient and result [batch, out, ...], channels-last; bias [out, (re, im)]
ComplexPair one_channel_conv2d(const ComplexPair& x, const at::Tensor& weight, const at::Tensor& bias,
                               const ConvGeometry& geometry);
// size: height and width of the convolution's input
ComplexPair one_channel_input_gradient(const ComplexPair& gradient, const at::Tensor& weight,
                                       std::array<int64_t, 2> size, const ConvGeometry& geometry);
// Of weight and bias.
std::pair<at::Tensor, at::Tensor> one_channel_weight_gradient(const ComplexPair& gradient,
                                                              const ComplexPair& x, const at::Tensor& weight,
                                                              const ConvGeometry& geometry);

}  // namespace melete

// How close a reconstructed picture is, in figures that people compare autoencoders by.
#pragma once

#include <ATen/ATen.h>

namespace melete {

// Both take real and fake [batch, channels, height, width] in [0, 1] and give one value a picture, [batch].
// Values outside are clamped first, as they are where a picture is shown.

// Peak signal-to-noise ratio in dB, at most 100; higher is better.
at::Tensor psnr(const at::Tensor& real, const at::Tensor& fake);

// Structural similarity (Wang et al. 2004) with its Gaussian window of 11 pixels (or as many as the picture
// has), mean over pixels and channels; 1 is the same picture.
at::Tensor ssim(const at::Tensor& real, const at::Tensor& fake);

}  // namespace melete

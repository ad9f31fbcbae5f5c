// Pictures as tensors and back. A tensor is [channels, height, width] float32 in [0, 1].
#pragma once

#include <ATen/ATen.h>

#include <string>
#include <vector>

#include "config/schema.h"
#include "io/base/png.h"

namespace melete {

at::Tensor picture_tensor(const Image& image, int64_t channels = 3);  // 3: colour, 1: grey

enum class OutOfRange {
  clamp,  // and the nearest of 256 values
  wrap,   // and cut off, as torchvision's ToPILImage does with values outside [0, 1]
};
// [..., channels, height, width] -> uint8 [..., height, width, channels]
at::Tensor picture_bytes(const at::Tensor& pictures, OutOfRange outside = OutOfRange::clamp);
Image picture_image(const at::Tensor& picture);  // of 1 or 3 channels

// Pictures of one size side by side, row by row, with `gap` black pixels between and around them.
Image picture_grid(const std::vector<at::Tensor>& pictures, int64_t columns, int64_t gap = 2);

// How a picture of any size becomes one to train on: the shorter side to what is needed, then cut.
struct PicturePreparation {
  int64_t height = 256;
  int64_t width = 0;  // 0: as high as wide
  std::string crop = "centre";
  bool flip = true;  // half of the pictures are mirrored
  int64_t channels = 3;
};
void describe(Schema& schema, PicturePreparation& config);

// What is left to chance: whether it is mirrored, and where it is cut, as shares of the margins.
struct PictureChances {
  bool mirrored = false;
  double left = 0.5, top = 0.5;
};
// Mirrored before it is cut.
Image prepare_picture(const Image& image, const PicturePreparation& how, const PictureChances& chances);

}  // namespace melete

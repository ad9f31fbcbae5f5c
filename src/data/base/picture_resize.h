// Pictures made to measure before they are trained on.
#pragma once

#include <cstdint>
#include <vector>

#include "io/base/png.h"

namespace melete {

// Antialiased: a triangle filter as wide as the pixels that become one, first along rows, then along columns,
// with eight bits after each. The values are those of Pillow's BILINEAR, which torchvision's Resize takes.
Image resize(const Image& image, int width, int height);

// The shorter side becomes `side`, the longer one follows, rounded down.
Image resize_shorter_side(const Image& image, int side);

// Pixels outside the picture are black.
Image crop(const Image& image, int left, int top, int width, int height);
// With an odd margin the middle is rounded to an even offset.
Image crop_centre(const Image& image, int width, int height);

Image mirrored(const Image& image);  // left and right change places

std::vector<uint8_t> to_grey(const Image& image);  // [height, width], luma by ITU-R 601

}  // namespace melete

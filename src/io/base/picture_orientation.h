// The orientation that a camera notes beside a picture (EXIF tag 274): 1 as stored, up to 8.
#pragma once

#include <string_view>

#include "io/base/png.h"

namespace melete {

// From an EXIF block, with or without its "Exif" header; 1 where it says nothing or cannot be read.
int exif_orientation(std::string_view block);

// Stored pixels -> upright ones.
Image upright(const Image& image, int orientation);

}  // namespace melete

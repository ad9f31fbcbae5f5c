// One decoder a format, behind picture_file.h. Each gives all pixels that it could read, the rest black, and
// never allocates for more than the bytes could hold.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "io/base/png.h"

namespace melete {

// Sides and pixels that are read at all: a few bytes may promise a picture of gigabytes.
constexpr int kLargestPictureSide = 1 << 15;
constexpr uint64_t kMostPicturePixels = 1 << 27;
void check_picture_size(uint64_t width, uint64_t height, const std::string& where);

struct DecodedPicture {
  int width = 0, height = 0;
  std::vector<uint8_t> rgba;  // [height, width, 4]; alpha 255 where the file has none
  bool grey = false, transparent = false, damaged = false;
  int orientation = 1;
};

// with_pixels false: only sizes and orientation.
DecodedPicture decode_jpeg(std::string_view bytes, const std::string& where, int shorter_side_at_least,
                           bool with_pixels);
DecodedPicture decode_png_picture(std::string_view bytes, const std::string& where, bool with_pixels);
DecodedPicture decode_webp(std::string_view bytes, const std::string& where, bool with_pixels);

}  // namespace melete

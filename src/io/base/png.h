// RGB pictures and PNG files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace melete {

struct Image {
  int width = 0;
  int height = 0;
  std::vector<uint8_t> rgb;  // [height, width, 3]

  Image() = default;
  Image(int width_pixels, int height_pixels, uint8_t grey = 255);
};

std::string encode_png(const Image& image);                   // the bytes of a PNG file
void write_png(const std::string& path, const Image& image);  // through AtomicFile
Image read_png(const std::string& path);                      // grey, palette and alpha become RGB
Image decode_png(std::string_view bytes, const std::string& where);

}  // namespace melete

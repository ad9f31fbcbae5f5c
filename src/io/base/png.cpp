#include "io/base/png.h"

#include <png.h>

#include <cstring>
#include <fstream>
#include <iterator>

#include "core/base/error.h"
#include "io/base/atomic_file.h"

namespace melete {

namespace {

constexpr int kLargestSide = 1 << 15;

// libpng's simplified interface, freed however we leave.
struct PngImage {
  png_image image;
  PngImage() {
    std::memset(&image, 0, sizeof image);
    image.version = PNG_IMAGE_VERSION;
  }
  ~PngImage() { png_image_free(&image); }
};

}  // namespace

Image::Image(int width_pixels, int height_pixels, uint8_t grey) : width(width_pixels), height(height_pixels) {
  require(width > 0 && height > 0 && width <= kLargestSide && height <= kLargestSide,
          "[image] expected sides from 1 to {} pixels, got {} x {}", kLargestSide, width, height);
  rgb.assign(static_cast<size_t>(width) * static_cast<size_t>(height) * 3, grey);
}

std::string encode_png(const Image& image) {
  require(image.width > 0 && image.height > 0 &&
              image.rgb.size() == static_cast<size_t>(image.width) * static_cast<size_t>(image.height) * 3,
          "[png] expected {} x {} x 3 bytes of pixels, got {}", image.width, image.height, image.rgb.size());
  PngImage png;
  png.image.width = static_cast<png_uint_32>(image.width);
  png.image.height = static_cast<png_uint_32>(image.height);
  png.image.format = PNG_FORMAT_RGB;
  std::string bytes(PNG_IMAGE_PNG_SIZE_MAX(png.image), '\0');
  png_alloc_size_t size = bytes.size();
  require(png_image_write_to_memory(&png.image, bytes.data(), &size, 0, image.rgb.data(), 0, nullptr) != 0,
          "[png] the picture cannot be encoded: {}", png.image.message);
  bytes.resize(size);
  return bytes;
}

void write_png(const std::string& path, const Image& image) {
  write_file_atomically(path, encode_png(image));
}

Image decode_png(std::string_view bytes, const std::string& where) {
  PngImage png;
  require(png_image_begin_read_from_memory(&png.image, bytes.data(), bytes.size()) != 0,
          "[{}] not a PNG picture: {}", where, png.image.message);
  require(png.image.width <= kLargestSide && png.image.height <= kLargestSide,
          "[{}] a picture of {} x {} pixels is larger than the {} that are read", where, png.image.width,
          png.image.height, kLargestSide);
  // A few bytes of header may promise a huge picture: a deflated byte holds at most about 1032, so that
  // anything beyond it is a lie and no memory is given to it.
  const uint64_t pixels = static_cast<uint64_t>(png.image.width) * png.image.height;
  require(pixels / 8 / 1100 <= bytes.size(), "[{}] damaged: {} bytes cannot hold {} x {} pixels", where,
          bytes.size(), png.image.width, png.image.height);
  png.image.format = PNG_FORMAT_RGB;
  Image image(static_cast<int>(png.image.width), static_cast<int>(png.image.height));
  const png_color white{255, 255, 255};
  require(png_image_finish_read(&png.image, &white, image.rgb.data(), 0, nullptr) != 0,
          "[{}] damaged PNG picture: {}", where, png.image.message);
  return image;
}

Image read_png(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  require(in.is_open(), "[{}] cannot be opened", path);
  const std::string bytes{std::istreambuf_iterator<char>(in), {}};
  return decode_png(bytes, path);
}

}  // namespace melete

#include "io/base/picture_orientation.h"

#include <cstring>

namespace melete {

namespace {

// A TIFF structure in either byte order; reading beyond its end gives 0.
class TiffReader {
 public:
  explicit TiffReader(std::string_view bytes) : bytes_(bytes), little_(bytes.starts_with("II")) {}

  bool valid() const { return (bytes_.starts_with("II") || bytes_.starts_with("MM")) && number(2, 2) == 42; }
  uint32_t number(size_t at, size_t size) const {
    if (at > bytes_.size() || size > bytes_.size() - at) return 0;
    uint32_t value = 0;
    for (size_t i = 0; i < size; ++i)
      value = value << 8 | static_cast<unsigned char>(bytes_[at + (little_ ? size - 1 - i : i)]);
    return value;
  }

 private:
  std::string_view bytes_;
  bool little_;
};

constexpr uint32_t kOrientationTag = 274;

}  // namespace

int exif_orientation(std::string_view block) {
  constexpr std::string_view header("Exif\0\0", 6);
  if (block.starts_with(header)) block.remove_prefix(header.size());
  const TiffReader tiff(block);
  if (!tiff.valid()) return 1;
  const size_t directory = tiff.number(4, 4), entries = tiff.number(directory, 2);
  for (size_t i = 0; i < entries; ++i) {
    const size_t entry = directory + 2 + 12 * i;
    if (tiff.number(entry, 2) != kOrientationTag) continue;
    const uint32_t value = tiff.number(entry + 8, 2);
    return value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
  }
  return 1;
}

Image upright(const Image& image, int orientation) {
  if (orientation <= 1 || orientation > 8) return image;
  const bool turned = orientation >= 5;  // rows have become columns
  Image result(turned ? image.height : image.width, turned ? image.width : image.height);
  // Where the pixel (x, y) of the result was stored.
  const bool mirrored_x = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  const bool mirrored_y = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  for (int y = 0; y < result.height; ++y)
    for (int x = 0; x < result.width; ++x) {
      int from_x = turned ? y : x, from_y = turned ? x : y;
      if (mirrored_x) from_x = image.width - 1 - from_x;
      if (mirrored_y) from_y = image.height - 1 - from_y;
      const size_t to =
          (static_cast<size_t>(y) * static_cast<size_t>(result.width) + static_cast<size_t>(x)) * 3;
      const size_t from =
          (static_cast<size_t>(from_y) * static_cast<size_t>(image.width) + static_cast<size_t>(from_x)) * 3;
      std::memcpy(&result.rgb[to], &image.rgb[from], 3);
    }
  return result;
}

}  // namespace melete

#include "io/base/picture_file.h"

#include <algorithm>
#include <cctype>
#include <fstream>
#include <iterator>

#include "core/base/error.h"
#include "io/base/picture_decoders.h"
#include "io/base/picture_orientation.h"

namespace melete {

namespace {

constexpr std::string_view kPngStart("\x89PNG\r\n\x1a\n", 8);

std::string format_of(std::string_view bytes) {
  if (bytes.starts_with("\xff\xd8\xff")) return "jpeg";
  if (bytes.starts_with(kPngStart)) return "png";
  if (bytes.size() >= 12 && bytes.starts_with("RIFF") && bytes.substr(8, 4) == "WEBP") return "webp";
  return {};
}

DecodedPicture decode(std::string_view bytes, const std::string& format, const std::string& where,
                      int shorter_side_at_least, bool with_pixels) {
  if (format == "jpeg") return decode_jpeg(bytes, where, shorter_side_at_least, with_pixels);
  if (format == "png") return decode_png_picture(bytes, where, with_pixels);
  if (format == "webp") return decode_webp(bytes, where, with_pixels);
  fail("[{}] expected a JPEG, PNG or WebP picture, got something else", where);
}

Image to_rgb(const DecodedPicture& decoded, Transparency transparency) {
  Image image(decoded.width, decoded.height);
  const bool blends = decoded.transparent && transparency == Transparency::over_white;
  const uint8_t* from = decoded.rgba.data();
  for (size_t i = 0; i < image.rgb.size(); i += 3, from += 4)
    for (size_t c = 0; c < 3; ++c) {
      const unsigned alpha = from[3];
      image.rgb[i + c] =
          blends ? static_cast<uint8_t>((from[c] * alpha + 255u * (255u - alpha) + 127u) / 255u) : from[c];
    }
  return image;
}

}  // namespace

void check_picture_size(uint64_t width, uint64_t height, const std::string& where) {
  require(width > 0 && height > 0 && width <= kLargestPictureSide && height <= kLargestPictureSide &&
              width * height <= kMostPicturePixels,
          "[{}] a picture of {} x {} pixels; up to {} a side and {} in all are read", where, width, height,
          kLargestPictureSide, kMostPicturePixels);
}

Picture decode_picture(std::string_view bytes, const std::string& where, const PictureReading& how) {
  Picture picture;
  picture.format = format_of(bytes);
  const DecodedPicture decoded = decode(bytes, picture.format, where, how.shorter_side_at_least, true);
  picture.grey = decoded.grey;
  picture.transparent = decoded.transparent;
  picture.damaged = decoded.damaged;
  picture.image = to_rgb(decoded, how.transparency);
  if (how.upright && decoded.orientation != 1) picture.image = upright(picture.image, decoded.orientation);
  return picture;
}

Picture read_picture(const std::string& path, const PictureReading& how) {
  std::ifstream in(path, std::ios::binary);
  require(in.is_open(), "[{}] cannot be opened", path);
  const std::string bytes{std::istreambuf_iterator<char>(in), {}};
  return decode_picture(bytes, path, how);
}

PictureSize picture_size(std::string_view bytes, const std::string& where) {
  const DecodedPicture decoded = decode(bytes, format_of(bytes), where, 0, false);
  const bool turned = decoded.orientation >= 5;
  return {turned ? decoded.height : decoded.width, turned ? decoded.width : decoded.height};
}

bool is_picture_name(std::string_view path) {
  std::string ending(path.substr(std::min(path.rfind('.'), path.size())));
  std::transform(ending.begin(), ending.end(), ending.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  return ending == ".jpg" || ending == ".jpeg" || ending == ".png" || ending == ".webp";
}

}  // namespace melete

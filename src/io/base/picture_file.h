// Pictures in the files that people have: JPEG, PNG and WebP of any colour type, as RGB.
#pragma once

#include <string>
#include <string_view>

#include "io/base/png.h"

namespace melete {

enum class Transparency {
  over_white,  // a picture with holes stands on white
  dropped,     // pixels as they are stored, whatever they are under the holes
};

struct PictureReading {
  bool upright = true;  // turned as its EXIF orientation says
  Transparency transparency = Transparency::over_white;
  // A JPEG may be decoded at a half, a quarter or an eighth of its size, as long as its shorter side keeps
  // this many pixels; 0: never.
  int shorter_side_at_least = 0;
};

struct Picture {
  Image image;
  std::string format;        // "jpeg", "png", "webp"
  bool grey = false;         // stored without colours
  bool transparent = false;  // stored with an alpha channel
  bool damaged = false;  // the file ended too early or had an error in it; the image is what could be read
};

// Bytes that are no picture, or of which not even the size can be read, are an Error that names `where`.
Picture decode_picture(std::string_view bytes, const std::string& where, const PictureReading& how = {});
Picture read_picture(const std::string& path, const PictureReading& how = {});

struct PictureSize {
  int width = 0, height = 0;  // upright
};
// From the first bytes of a file; nothing is decoded.
PictureSize picture_size(std::string_view bytes, const std::string& where);

// By its ending: .jpg, .jpeg, .png, .webp, in any case.
bool is_picture_name(std::string_view path);

// The lossy formats that tokens are compared with. quality 0 to 100.
std::string encode_jpeg(const Image& image, int quality);
std::string encode_webp(const Image& image, int quality);

}  // namespace melete

#include <webp/decode.h>
#include <webp/encode.h>

#include <memory>

#include "core/base/error.h"
#include "io/base/picture_decoders.h"
#include "io/base/picture_file.h"
#include "io/base/picture_orientation.h"

namespace melete {

namespace {

// The EXIF chunk of the RIFF container, where there is one.
std::string_view exif_chunk(std::string_view bytes) {
  size_t at = 12;
  while (at + 8 <= bytes.size()) {
    uint64_t size = 0;
    for (size_t i = 0; i < 4; ++i)
      size |= static_cast<uint64_t>(static_cast<unsigned char>(bytes[at + 4 + i])) << (8 * i);
    if (size > bytes.size() - at - 8) return {};
    if (bytes.substr(at, 4) == "EXIF") return bytes.substr(at + 8, size);
    at += 8 + size + size % 2;
  }
  return {};
}

}  // namespace

DecodedPicture decode_webp(std::string_view bytes, const std::string& where, bool with_pixels) {
  const auto* data = reinterpret_cast<const uint8_t*>(bytes.data());
  WebPBitstreamFeatures features;
  require(WebPGetFeatures(data, bytes.size(), &features) == VP8_STATUS_OK, "[{}] damaged WebP picture",
          where);
  require(features.has_animation == 0, "[{}] moving WebP pictures are not read; take one frame of it", where);
  check_picture_size(static_cast<uint64_t>(features.width), static_cast<uint64_t>(features.height), where);
  DecodedPicture picture;
  picture.width = features.width;
  picture.height = features.height;
  picture.transparent = features.has_alpha != 0;
  picture.orientation = exif_orientation(exif_chunk(bytes));
  if (!with_pixels) return picture;

  picture.rgba.assign(static_cast<size_t>(picture.width) * static_cast<size_t>(picture.height) * 4, 0);
  const int stride = picture.width * 4;
  const std::unique_ptr<WebPIDecoder, void (*)(WebPIDecoder*)> decoder(
      WebPINewRGB(MODE_RGBA, picture.rgba.data(), picture.rgba.size(), stride), WebPIDelete);
  require(decoder != nullptr, "[{}] libwebp cannot be used", where);
  // A decoder that could still use more bytes has decoded all rows that it had bytes for.
  const VP8StatusCode status = WebPIUpdate(decoder.get(), data, bytes.size());
  picture.damaged = status != VP8_STATUS_OK;
  int rows = 0;
  WebPIDecGetRGB(decoder.get(), &rows, nullptr, nullptr, nullptr);
  require(!picture.damaged || rows > 0, "[{}] damaged WebP picture: no row of it can be read", where);
  return picture;
}

std::string encode_webp(const Image& image, int quality) {
  uint8_t* bytes = nullptr;
  const size_t size = WebPEncodeRGB(image.rgb.data(), image.width, image.height, image.width * 3,
                                    static_cast<float>(quality), &bytes);
  require(size > 0, "[webp] the picture of {} x {} pixels cannot be encoded", image.width, image.height);
  const std::unique_ptr<uint8_t, void (*)(void*)> owner(bytes, WebPFree);
  return {reinterpret_cast<const char*>(bytes), size};
}

}  // namespace melete

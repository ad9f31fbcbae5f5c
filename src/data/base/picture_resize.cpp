#include "data/base/picture_resize.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/base/error.h"

namespace melete {

namespace {

// Weights are whole numbers of 2^-22, so that a sum of pixels times weights fits into 32 bits.
constexpr int kWeightBits = 22;

// Which pixels of a line one pixel of the new line is made of.
struct Share {
  int first;                     // pixel
  std::vector<int32_t> weights;  // of it and those after it; their sum is about 2^22
};

std::vector<Share> shares_of(int from, int to) {
  const double scale = static_cast<double>(from) / to;
  const double reach = std::max(scale, 1.0);  // a line that grows is interpolated between neighbours
  std::vector<Share> shares;
  for (int i = 0; i < to; ++i) {
    const double centre = (i + 0.5) * scale;
    const int first = std::max(static_cast<int>(centre - reach + 0.5), 0);
    const int end = std::min(static_cast<int>(centre + reach + 0.5), from);
    std::vector<double> heights;
    double sum = 0;
    for (int x = first; x < end; ++x) {
      heights.push_back(std::max(1 - std::abs((x - centre + 0.5) * (1 / reach)), 0.0));
      sum += heights.back();
    }
    Share share{first, {}};
    for (const double height : heights)
      share.weights.push_back(static_cast<int32_t>(height / sum * (1 << kWeightBits) + 0.5));
    shares.push_back(std::move(share));
  }
  return shares;
}

uint8_t rounded(int32_t sum) {
  return static_cast<uint8_t>(std::clamp(sum >> kWeightBits, 0, 255));
}

// One pass: `stride` bytes between two pixels of a line.
void resample_line(const uint8_t* from, uint8_t* to, size_t from_stride, size_t to_stride,
                   const std::vector<Share>& shares) {
  for (const Share& share : shares) {
    const uint8_t* pixel = from + static_cast<size_t>(share.first) * from_stride;
    int32_t sums[3] = {1 << (kWeightBits - 1), 1 << (kWeightBits - 1), 1 << (kWeightBits - 1)};
    for (const int32_t weight : share.weights) {
      for (int c = 0; c < 3; ++c) sums[c] += pixel[c] * weight;
      pixel += from_stride;
    }
    for (int c = 0; c < 3; ++c) to[c] = rounded(sums[c]);
    to += to_stride;
  }
}

size_t row_bytes(const Image& image) {
  return static_cast<size_t>(image.width) * 3;
}

}  // namespace

Image resize(const Image& image, int width, int height) {
  require(width > 0 && height > 0, "[picture] expected a size of at least one pixel, got {} x {}", width,
          height);
  Image wide = image;
  if (width != image.width) {
    wide = Image(width, image.height);
    const auto shares = shares_of(image.width, width);
    for (size_t y = 0; y < static_cast<size_t>(image.height); ++y)
      resample_line(&image.rgb[y * row_bytes(image)], &wide.rgb[y * row_bytes(wide)], 3, 3, shares);
  }
  if (height == image.height) return wide;
  Image result(width, height);
  const auto shares = shares_of(image.height, height);
  for (size_t x = 0; x < static_cast<size_t>(width); ++x)
    resample_line(&wide.rgb[x * 3], &result.rgb[x * 3], row_bytes(wide), row_bytes(result), shares);
  return result;
}

Image resize_shorter_side(const Image& image, int side) {
  require(side > 0, "[picture] expected a side of at least one pixel, got {}", side);
  const int shorter = std::min(image.width, image.height), longer = std::max(image.width, image.height);
  const int other = static_cast<int>(static_cast<int64_t>(side) * longer / shorter);
  return image.width <= image.height ? resize(image, side, other) : resize(image, other, side);
}

Image crop(const Image& image, int left, int top, int width, int height) {
  Image result(width, height, 0);
  const int first = std::max(0, -left), end = std::min(width, image.width - left);
  if (first >= end) return result;
  for (int y = std::max(0, -top); y < std::min(height, image.height - top); ++y)
    std::memcpy(
        &result.rgb[static_cast<size_t>(y) * row_bytes(result) + static_cast<size_t>(first) * 3],
        &image.rgb[static_cast<size_t>(y + top) * row_bytes(image) + static_cast<size_t>(first + left) * 3],
        static_cast<size_t>(end - first) * 3);
  return result;
}

Image crop_centre(const Image& image, int width, int height) {
  const auto offset = [](int margin) { return static_cast<int>(std::nearbyint(margin / 2.0)); };
  return crop(image, offset(image.width - width), offset(image.height - height), width, height);
}

Image mirrored(const Image& image) {
  Image result(image.width, image.height);
  const auto width = static_cast<size_t>(image.width);
  for (size_t y = 0; y < static_cast<size_t>(image.height); ++y)
    for (size_t x = 0; x < width; ++x)
      std::memcpy(&result.rgb[(y * width + x) * 3], &image.rgb[(y * width + width - 1 - x) * 3], 3);
  return result;
}

std::vector<uint8_t> to_grey(const Image& image) {
  std::vector<uint8_t> grey(image.rgb.size() / 3);
  for (size_t i = 0; i < grey.size(); ++i) {
    const uint8_t* pixel = &image.rgb[i * 3];
    // 0.299, 0.587 and 0.114 in 2^-16
    grey[i] = static_cast<uint8_t>((pixel[0] * 19595u + pixel[1] * 38470u + pixel[2] * 7471u + 32768u) >> 16);
  }
  return grey;
}

}  // namespace melete

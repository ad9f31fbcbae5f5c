// Pictures: formats, orientations, what is left of truncated files, resizing.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "core/base/error.h"
#include "core/base/random.h"
#include "data/base/picture_resize.h"
#include "io/base/picture_file.h"
#include "io/base/picture_orientation.h"
#include "temporary_folder.h"

namespace melete {
namespace picture_test {

// Soft colours, so that a lossy format keeps them.
Image gradient(int width, int height) {
  Image image(width, height);
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x) {
      uint8_t* pixel = &image.rgb[static_cast<size_t>(y * width + x) * 3];
      pixel[0] = static_cast<uint8_t>(255 * x / width);
      pixel[1] = static_cast<uint8_t>(255 * y / height);
      pixel[2] = 90;
    }
  return image;
}

Image noise(int width, int height, uint64_t seed = 5) {
  Image image(width, height);
  Rng rng(seed);
  for (uint8_t& value : image.rgb) value = static_cast<uint8_t>(rng.next());
  return image;
}

double mean_difference(const Image& a, const Image& b) {
  EXPECT_EQ(a.width, b.width);
  EXPECT_EQ(a.height, b.height);
  double sum = 0;
  for (size_t i = 0; i < a.rgb.size(); ++i) sum += std::abs(a.rgb[i] - b.rgb[i]);
  return sum / static_cast<double>(a.rgb.size());
}

TEST(Picture, EveryFormatIsRead) {
  const Image image = gradient(70, 45);
  const Picture png = decode_picture(encode_png(image), "png");
  EXPECT_EQ(png.format, "png");
  EXPECT_EQ(png.image.rgb, image.rgb);
  const Picture jpeg = decode_picture(encode_jpeg(image, 95), "jpeg");
  EXPECT_EQ(jpeg.format, "jpeg");
  EXPECT_LT(mean_difference(jpeg.image, image), 2);
  const Picture webp = decode_picture(encode_webp(image, 95), "webp");
  EXPECT_EQ(webp.format, "webp");
  EXPECT_LT(mean_difference(webp.image, image), 3);
  for (const Picture* picture : {&png, &jpeg, &webp}) {
    EXPECT_FALSE(picture->damaged);
    EXPECT_FALSE(picture->grey);
    EXPECT_FALSE(picture->transparent);
  }
  EXPECT_EQ(picture_size(encode_jpeg(image, 50), "jpeg").width, 70);
  EXPECT_EQ(picture_size(encode_png(image), "png").height, 45);
  EXPECT_THROW(decode_picture("GIF89a", "gif"), Error);
  EXPECT_THROW(decode_picture("", "nothing"), Error);
  EXPECT_THROW(read_picture("/no/such/picture.jpg"), Error);
}

TEST(Picture, NamesOfPictures) {
  EXPECT_TRUE(is_picture_name("a/b.JPG"));
  EXPECT_TRUE(is_picture_name("b.jpeg"));
  EXPECT_TRUE(is_picture_name("b.x.webp"));
  EXPECT_FALSE(is_picture_name("b.txt"));
  EXPECT_FALSE(is_picture_name("png"));
}

TEST(Picture, TruncatedFilesGiveWhatTheyHold) {
  const Image image = noise(64, 96);
  for (const std::string& bytes : {encode_png(image), encode_jpeg(image, 90), encode_webp(image, 90)}) {
    const Picture whole = decode_picture(bytes, "whole");
    const Picture half = decode_picture(std::string_view(bytes).substr(0, bytes.size() / 2), "half");
    EXPECT_TRUE(half.damaged) << whole.format;
    ASSERT_EQ(half.image.rgb.size(), whole.image.rgb.size());
    const size_t start = whole.image.rgb.size() / 8;  // rows that half of the bytes hold in any case
    EXPECT_TRUE(std::equal(whole.image.rgb.begin(), whole.image.rgb.begin() + static_cast<int64_t>(start),
                           half.image.rgb.begin()))
        << whole.format;
    EXPECT_NE(half.image.rgb, whole.image.rgb) << whole.format;
  }
  // A file that ends inside a marker is read up to it.
  const std::string jpeg = encode_jpeg(image, 90);
  for (size_t size = jpeg.size() / 3; size < jpeg.size(); size += 13)
    EXPECT_NO_THROW(decode_picture(std::string_view(jpeg).substr(0, size), "cut")) << size;
}

// An EXIF block that says only how a picture is turned.
std::string exif(int orientation, bool little) {
  std::string block("Exif\0\0", 6);
  const auto number = [&](unsigned value, int size) {
    std::string bytes;
    for (int i = 0; i < size; ++i) bytes += static_cast<char>(value >> (8 * (little ? i : size - 1 - i)));
    block += bytes;
  };
  block += little ? "II" : "MM";
  number(42, 2);
  number(8, 4);
  number(1, 2);
  number(274, 2);
  number(3, 2);
  number(1, 4);
  number(static_cast<unsigned>(orientation), 2);
  number(0, 2);
  return block;
}

TEST(Picture, ExifOrientation) {
  for (const bool little : {true, false})
    for (int orientation = 1; orientation <= 8; ++orientation)
      EXPECT_EQ(exif_orientation(exif(orientation, little)), orientation);
  EXPECT_EQ(exif_orientation(exif(9, true)), 1);
  EXPECT_EQ(exif_orientation(""), 1);
  const std::string block = exif(6, false);
  for (size_t size = 0; size < 6 + 8 + 2 + 10; ++size) EXPECT_EQ(exif_orientation(block.substr(0, size)), 1);

  // Turning four times by a quarter, or mirroring twice, gives the picture back; all eight differ.
  const Image image = noise(5, 3);
  EXPECT_EQ(upright(upright(upright(upright(image, 6), 6), 6), 6).rgb, image.rgb);
  EXPECT_EQ(upright(upright(image, 6), 8).rgb, image.rgb);
  for (const int mirror : {2, 3, 4, 5, 7}) EXPECT_EQ(upright(upright(image, mirror), mirror).rgb, image.rgb);
  std::set<std::vector<uint8_t>> all;
  for (int orientation = 1; orientation <= 8; ++orientation) all.insert(upright(image, orientation).rgb);
  EXPECT_EQ(all.size(), 8u);
  // 6: the camera was held so that the first stored row is the right edge.
  const Image turned = upright(image, 6);
  EXPECT_EQ(turned.width, 3);
  EXPECT_EQ(std::vector<uint8_t>(&turned.rgb[6], &turned.rgb[9]),
            std::vector<uint8_t>(&image.rgb[0], &image.rgb[3]));

  // In a JPEG file, behind its first marker.
  std::string bytes = encode_jpeg(gradient(32, 16), 90);
  const std::string marker = exif(6, true);
  std::string segment = "\xff\xe1";
  segment += static_cast<char>((marker.size() + 2) >> 8);
  segment += static_cast<char>(marker.size() + 2);
  bytes.insert(2, segment + marker);
  EXPECT_EQ(decode_picture(bytes, "turned").image.width, 16);
  EXPECT_EQ(picture_size(bytes, "turned").width, 16);
  PictureReading as_stored;
  as_stored.upright = false;
  EXPECT_EQ(decode_picture(bytes, "turned", as_stored).image.width, 32);
}

TEST(Picture, JpegMayBeDecodedSmaller) {
  const std::string bytes = encode_jpeg(gradient(640, 480), 90);
  PictureReading how;
  for (const auto& [least, height] :
       {std::pair{0, 480}, {60, 60}, {61, 120}, {200, 240}, {241, 480}, {999, 480}}) {
    how.shorter_side_at_least = least;
    EXPECT_EQ(decode_picture(bytes, "large", how).image.height, height) << least;
  }
}

TEST(Resize, KeepsOneColourAndMeans) {
  const Image grey(50, 31, 77);
  for (const auto& [width, height] : {std::pair{10, 10}, {50, 31}, {123, 7}, {1, 1}})
    for (const uint8_t value : resize(grey, width, height).rgb) EXPECT_EQ(value, 77);

  const Image image = noise(96, 64);
  double before = 0, after = 0;
  for (const uint8_t value : image.rgb) before += value;
  const Image small = resize(image, 12, 8);
  for (const uint8_t value : small.rgb) after += value;
  // Inner pixels count alike; only the edges weigh a little more.
  EXPECT_NEAR(before / static_cast<double>(image.rgb.size()), after / static_cast<double>(small.rgb.size()),
              3);
}

TEST(Resize, ShorterSideCropAndMirror) {
  EXPECT_EQ(resize_shorter_side(noise(30, 20), 10).width, 15);
  EXPECT_EQ(resize_shorter_side(noise(20, 31), 10).height, 15);
  EXPECT_EQ(resize_shorter_side(noise(20, 20), 10).height, 10);
  const Image image = noise(9, 6);
  EXPECT_EQ(mirrored(mirrored(image)).rgb, image.rgb);
  EXPECT_EQ(crop(image, 0, 0, 9, 6).rgb, image.rgb);
  const Image outside = crop(image, -2, -1, 4, 3);
  EXPECT_EQ(outside.rgb[0], 0);
  EXPECT_EQ(outside.rgb[(1 * 4 + 2) * 3], image.rgb[0]);
  EXPECT_EQ(crop(image, 100, 100, 2, 2).rgb, std::vector<uint8_t>(12, 0));
  EXPECT_EQ(crop_centre(image, 4, 6).rgb, crop(image, 2, 0, 4, 6).rgb) << "2.5 is rounded to 2";
  EXPECT_EQ(to_grey(Image(2, 1, 200)), (std::vector<uint8_t>{200, 200}));
}

}  // namespace picture_test
}  // namespace melete

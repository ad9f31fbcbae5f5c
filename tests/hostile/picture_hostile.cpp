// Broken pictures end in an Error that names the file, or in a picture of the size that it says; the
// sanitizers watch.
#include <gtest/gtest.h>

#include <cmath>

#include "core/base/error.h"
#include "io/base/picture_file.h"
#include "io/base/picture_orientation.h"
#include "mutate.h"

namespace melete {
namespace picture_hostile {

using testing::mutate;

Image waves(int width, int height) {
  Image image(width, height);
  for (size_t i = 0; i < image.rgb.size(); ++i)
    image.rgb[i] = static_cast<uint8_t>(127 + 120 * std::sin(static_cast<double>(i) * 0.037));
  return image;
}

std::string encoded(const std::string& format) {
  const Image image = waves(61, 43);
  return format == "png"    ? encode_png(image)
         : format == "jpeg" ? encode_jpeg(image, 85)
                            : encode_webp(image, 85);
}

class HostilePicture : public ::testing::TestWithParam<const char*> {};

TEST_P(HostilePicture, MutationsGiveAnErrorOrAPicture) {
  const std::string good = encoded(GetParam());
  int errors = 0, reads = 0, damaged = 0;
  for (uint64_t variant = 0; variant < 600; ++variant) {
    const std::string bytes = mutate(good, variant);
    try {
      picture_size(bytes, "broken.picture");
      PictureReading how;
      how.shorter_side_at_least = static_cast<int>(variant % 3) * 10;
      const Picture picture = decode_picture(bytes, "broken.picture", how);
      EXPECT_EQ(picture.image.rgb.size(),
                static_cast<size_t>(picture.image.width) * static_cast<size_t>(picture.image.height) * 3);
      damaged += picture.damaged ? 1 : 0;
      ++reads;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("broken.picture"), std::string::npos) << error.what();
      ++errors;
    }
  }
  EXPECT_GT(errors, 20);
  EXPECT_GT(damaged, 20);
  EXPECT_EQ(errors + reads, 600);
}

TEST_P(HostilePicture, EveryCutGivesAnErrorOrAPicture) {
  const std::string good = encoded(GetParam());
  for (size_t size = 0; size < good.size(); size += size < 700 ? 1 : 37) {
    try {
      decode_picture(good.substr(0, size), "cut.picture");
    } catch (const Error&) {
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, HostilePicture, ::testing::Values("png", "jpeg", "webp"));

// A few bytes that promise much get no memory.
TEST(HostilePictures, HugeSizesAreRefused) {
  std::string png = encoded("png");
  for (const size_t at : {16u, 20u}) png[at] = 0, png[at + 1] = 0, png[at + 2] = '\x7f', png[at + 3] = 0;
  EXPECT_THROW(decode_picture(png, "huge.png"), Error);
  std::string jpeg = encoded("jpeg");
  const size_t frame = jpeg.find("\xff\xc0");
  ASSERT_NE(frame, std::string::npos);
  for (const size_t at : {frame + 5, frame + 7}) jpeg[at] = '\x40', jpeg[at + 1] = 0;
  EXPECT_THROW(decode_picture(jpeg, "huge.jpg"), Error);
}

TEST(HostilePictures, ExifBlocksOfAnyBytes) {
  Rng rng(3);
  for (int i = 0; i < 2000; ++i) {
    std::string block = rng.uniform() < 0.5 ? "II*" : "MM";
    const auto size = static_cast<size_t>(rng.integer(0, 60));
    while (block.size() < size) block += static_cast<char>(rng.integer(0, 256));
    const int orientation = exif_orientation(block);
    EXPECT_GE(orientation, 1);
    EXPECT_LE(orientation, 8);
  }
}

}  // namespace picture_hostile
}  // namespace melete

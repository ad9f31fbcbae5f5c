#include "io/base/png.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "core/base/error.h"
#include "core/base/random.h"

namespace melete {
namespace png_test {

Image noise(int width, int height) {
  Image image(width, height);
  Rng rng(5);
  for (uint8_t& value : image.rgb) value = static_cast<uint8_t>(rng.next());
  return image;
}

TEST(PngTest, RoundTripIsExact) {
  const std::string path = (std::filesystem::temp_directory_path() / "melete_png_test.png").string();
  for (const auto& [width, height] : {std::pair{1, 1}, {7, 3}, {200, 131}}) {
    const Image image = noise(width, height);
    write_png(path, image);
    const Image back = read_png(path);
    EXPECT_EQ(back.width, width);
    EXPECT_EQ(back.height, height);
    EXPECT_EQ(back.rgb, image.rgb);
  }
  std::filesystem::remove(path);
}

TEST(PngTest, RefusesDamageAndWrongSizes) {
  const std::string bytes = encode_png(noise(40, 30));
  // The last 24 bytes are checksums and an end mark: a picture that lacks only those is whole.
  for (size_t size = 0; size + 24 < bytes.size(); size += 7)
    EXPECT_THROW(decode_png(std::string_view(bytes).substr(0, size), "cut"), Error) << size;
  std::string huge = bytes;  // the header promises 32768 x 32768 pixels
  for (const size_t at : {16u, 20u}) huge[at] = 0, huge[at + 1] = 0, huge[at + 2] = '\x80', huge[at + 3] = 0;
  EXPECT_THROW(decode_png(huge, "huge"), Error);
  EXPECT_THROW(read_png("/no/such/picture.png"), Error);
  Image wrong(4, 4);
  wrong.rgb.pop_back();
  EXPECT_THROW(encode_png(wrong), Error);
  EXPECT_THROW(Image(0, 4), Error);
  EXPECT_THROW(Image(4, 1 << 20), Error);
}

}  // namespace png_test
}  // namespace melete

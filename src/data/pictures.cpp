#include "data/pictures.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

#include "core/base/error.h"
#include "data/base/picture_resize.h"

namespace melete {

at::Tensor picture_tensor(const Image& image, int64_t channels) {
  require(channels == 1 || channels == 3, "[picture] expected 1 or 3 channels, got {}", channels);
  const std::vector<uint8_t> grey = channels == 1 ? to_grey(image) : std::vector<uint8_t>();
  const std::vector<uint8_t>& bytes = channels == 1 ? grey : image.rgb;
  const at::Tensor pixels =
      at::from_blob(const_cast<uint8_t*>(bytes.data()), {image.height, image.width, channels}, at::kByte);
  return pixels.permute({2, 0, 1}).to(at::kFloat).contiguous().div_(255);
}

at::Tensor picture_bytes(const at::Tensor& pictures, OutOfRange outside) {
  const at::Tensor values = pictures.detach().to(at::kCPU, at::kFloat) * 255;
  const at::Tensor bytes = outside == OutOfRange::clamp ? (values + 0.5).clamp(0, 255).to(at::kByte)
                                                        : values.to(at::kInt).bitwise_and(255).to(at::kByte);
  return bytes.movedim(-3, -1).contiguous();
}

Image picture_image(const at::Tensor& picture) {
  require(picture.dim() == 3 && (picture.size(0) == 1 || picture.size(0) == 3),
          "[picture] expected [1 or 3 channels, height, width], got [{}]", fmt::join(picture.sizes(), ", "));
  const at::Tensor bytes = picture_bytes(picture.expand({3, -1, -1}));
  Image image(static_cast<int>(bytes.size(1)), static_cast<int>(bytes.size(0)));
  std::memcpy(image.rgb.data(), bytes.data_ptr<uint8_t>(), image.rgb.size());
  return image;
}

Image picture_grid(const std::vector<at::Tensor>& pictures, int64_t columns, int64_t gap) {
  require(!pictures.empty() && columns > 0, "[picture] a grid needs pictures and columns");
  const auto count = static_cast<int64_t>(pictures.size());
  const int64_t across = std::min(columns, count), down = (count + across - 1) / across;
  const int64_t height = pictures.front().size(1) + gap, width = pictures.front().size(2) + gap;
  at::Tensor grid = at::zeros({pictures.front().size(0), down * height + gap, across * width + gap});
  for (int64_t i = 0; i < count; ++i) {
    const at::Tensor& picture = pictures[static_cast<size_t>(i)];
    require(picture.sizes() == pictures.front().sizes(), "[picture] a grid needs pictures of one size");
    grid.narrow(1, i / across * height + gap, picture.size(1))
        .narrow(2, i % across * width + gap, picture.size(2))
        .copy_(picture.detach());
  }
  return picture_image(grid);
}

void describe(Schema& s, PicturePreparation& c) {
  s.option("height", c.height, "of a picture that is trained on").at_least(1).unit("pixels");
  s.option("width", c.width, "of it; 0: as the height").at_least(0).unit("pixels");
  s.option("crop", c.crop, "what is kept of a picture that is too long: its middle, or a part at random")
      .one_of({"centre", "random"});
  s.option("flip", c.flip, "half of the pictures are mirrored");
  s.option("channels", c.channels, "3: colour, 1: grey").at_least(1).at_most(3);
}

Image prepare_picture(const Image& image, const PicturePreparation& how, const PictureChances& chances) {
  const int height = static_cast<int>(how.height),
            width = static_cast<int>(how.width > 0 ? how.width : how.height);
  Image made;
  if (width == height) {
    made = resize_shorter_side(image, width);
  } else {
    // Large enough along both sides, and no larger.
    const double scale =
        std::max(static_cast<double>(width) / image.width, static_cast<double>(height) / image.height);
    const auto side = [scale](int pixels, int least) {
      return std::max(static_cast<int>(pixels * scale + 1e-9), least);
    };
    made = resize(image, side(image.width, width), side(image.height, height));
  }
  if (chances.mirrored) made = mirrored(made);
  if (how.crop == "centre") return crop_centre(made, width, height);
  const auto offset = [](int margin, double share) {
    return std::min(static_cast<int>((margin + 1) * share), margin);
  };
  return crop(made, offset(made.width - width, chances.left), offset(made.height - height, chances.top),
              width, height);
}

}  // namespace melete

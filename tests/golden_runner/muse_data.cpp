// Pictures as muse-maskgit-pytorch's ImageDataset reads and prepares them, and its text encoder.
#include "core/base/error.h"
#include "data/base/picture_resize.h"
#include "data/pictures.h"
#include "golden.h"
#include "io/base/picture_file.h"
#include "nn/frozen.h"
#include "pretrained/t5_names.h"

namespace melete::golden::muse_data_cases {

namespace {

at::Tensor pixels_of(const Image& image) {
  return at::tensor(at::ArrayRef<uint8_t>(image.rgb)).view({image.height, image.width, 3});
}

void check_dataset(const Case& c, Checker& check) {
  expect_only(c.config, {"image_size", "exts", "folder"});
  const auto& size = c.config.at("image_size");
  const int height = size.is_array() ? size[0].get<int>() : size.get<int>();
  const int width = size.is_array() ? size[1].get<int>() : height;
  PictureReading reading;
  reading.upright = false;
  reading.transparency = Transparency::dropped;
  for (const auto& [key, wanted] : c.io) {
    const std::string what = key.substr(4, key.find('.', 4) - 4);  // out.plain.sub/img04.png
    const Image image = read_picture(c.folder + "/images/" + key.substr(key.find('.', 4) + 1), reading).image;
    if (what == "decoded") {
      check.close(key, pixels_of(image), wanted);
      continue;
    }
    // A pair of sides is taken as it is.
    Image made = size.is_array() ? resize(image, width, height) : resize_shorter_side(image, height);
    if (what == "flip") made = mirrored(made);
    check.close(key, picture_tensor(crop_centre(made, width, height)), wanted);
  }
}

void check_text(const Case& c, Checker& check) {
  const FrozenScope frozen;
  T5Encoder model = huggingface::load_t5(huggingface::t5_config(c.config), c.weights, c.name);
  const at::Tensor mask = c.in("attention_mask").to(at::kBool);
  const at::Tensor hidden = model->forward(c.in("input_ids"), mask);
  check.close("text_embeds", hidden.masked_fill(mask.logical_not().unsqueeze(-1), 0), c.out("text_embeds"));
}

const bool registered = register_case("muse", "ImageDataset", check_dataset) &&
                        register_case("muse", "T5EncoderModel (transformers) via t5_encode_text", check_text);

}  // namespace

}  // namespace melete::golden::muse_data_cases

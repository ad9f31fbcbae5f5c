#include "systems/muse/picture_tokenizer.h"

#include "core/base/error.h"
#include "nn/frozen.h"
#include "nn/identity.h"

namespace melete::muse {

namespace {

const YoungerSettings kYounger = {"quantizer.training_beams"};

}  // namespace

PictureTokenizer::PictureTokenizer(VqganVae vae) : vae_(std::move(vae)) {
  freeze(*vae_);
  VqganVaeConfig config = vae_->config();
  identity_ = identity_of_model("vqgan", config, tensors_of(*vae_), kYounger);
}

at::Tensor PictureTokenizer::tokens(const at::Tensor& pictures) const {
  const at::Tensor here = pictures.to(device_of(*vae_));
  const FrozenScope frozen(here);
  VqganVae vae = vae_;
  return vae->tokenize(here).flatten(1).to(pictures.device());
}

at::Tensor PictureTokenizer::pictures(const at::Tensor& tokens, int64_t height, int64_t width) const {
  const at::Tensor here = tokens.to(device_of(*vae_));
  const FrozenScope frozen(here);
  const int64_t step = pixels_per_token(), codebooks = vae_->config().quantizer.codebooks;
  const at::Tensor grid = here.reshape({here.size(0), height / step, width / step, codebooks});
  VqganVae vae = vae_;
  return vae->decode_ids(codebooks == 1 ? grid.squeeze(-1) : grid).to(tokens.device(), at::kFloat);
}

int64_t PictureTokenizer::tokens_of(int64_t height, int64_t width) const {
  const int64_t step = pixels_per_token();
  require(height % step == 0 && width % step == 0,
          "[muse] the VQ-GAN makes a token of {0} x {0} pixels; expected sides that are multiples of {0}, "
          "got {1} x {2}",
          step, height, width);
  return height / step * (width / step) * vae_->config().quantizer.codebooks;
}

at::Tensor resized(const at::Tensor& pictures, int64_t height, int64_t width) {
  if (pictures.size(2) == height && pictures.size(3) == width) return pictures;
  return at::_upsample_bilinear2d_aa(pictures.contiguous(), {height, width}, /*align_corners=*/false);
}

}  // namespace melete::muse

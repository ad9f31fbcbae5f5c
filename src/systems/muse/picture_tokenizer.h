// A trained VQ-GAN as a frozen tokenizer of pictures.
#pragma once

#include <string>

#include "roles/placed.h"
#include "systems/muse/vqgan_vae.h"

namespace melete::muse {

class PictureTokenizer : public Placed {
 public:
  explicit PictureTokenizer(VqganVae vae);
  void move_to(at::Device device) override { vae_->to(device); }

  // pictures [batch, channels, height, width] in [0, 1] -> [batch, tokens] int64: row by row, the codebooks
  // of a place beside each other. May be called from several threads at once.
  at::Tensor tokens(const at::Tensor& pictures) const;
  // The other way round, for pictures of that size. -> pictures, values may lie a little outside [0, 1]
  at::Tensor pictures(const at::Tensor& tokens, int64_t height, int64_t width) const;

  int64_t tokens_of(int64_t height, int64_t width) const;
  int64_t codebook_size() const { return vae_->codebook_size(); }
  int64_t channels() const { return vae_->config().channels; }
  int64_t pixels_per_token() const { return vae_->pixels_per_token(); }
  const std::string& identity() const { return identity_; }  // hash of weights and configuration
  VqganVae vae() const { return vae_; }

 private:
  VqganVae vae_;
  std::string identity_;
};

// [batch, channels, any, any] -> [batch, channels, height, width], with antialiasing
at::Tensor resized(const at::Tensor& pictures, int64_t height, int64_t width);

}  // namespace melete::muse

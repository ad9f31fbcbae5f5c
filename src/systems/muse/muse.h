// Muse (Chang et al. 2023): text -> a small picture -> a large one. Each stage is a MaskGit with the
// tokenizer of its pictures; the second reads the tokens of what the first has made.
#pragma once

#include <functional>

#include "systems/muse/guided_maskgit.h"
#include "systems/muse/vqgan_vae.h"

namespace melete::muse {

// What makes pictures of one size. All in eval mode.
struct PictureStage {
  MaskGit maskgit{nullptr};
  VqganVae vae{nullptr};
  VqganVae condition_vae{nullptr};  // of the smaller picture; none: the stage reads no picture
};

struct PictureRequest {
  at::Tensor text;                // [rows, length, text_dim]
  at::Tensor negative;            // the same for what is not wanted, or undefined
  at::Tensor smaller;             // pictures that condition_vae reads, or undefined
  int64_t rows = 0, columns = 0;  // of the grid of tokens; 0: the largest square that fits
  // Inpainting and variations: [rows, channels, height, width] pictures to start from, or undefined; kept
  // bool [rows, grid rows, grid columns] tokens that stay as they are, undefined: none; strength: the share
  // of the others that is made anew.
  at::Tensor pictures, kept;
  double strength = 1;
  Guidance guidance;
  IterativeMaskingConfig decoding;
  std::string precision = "fp32";  // of the factors of the transformer's products
};

struct PictureResult {
  at::Tensor ids;        // [rows, grid rows, grid columns]
  at::Tensor pictures;   // [rows, channels, height, width]; values may lie a little outside [0, 1]
  at::Tensor condition;  // ids of the smaller pictures, or undefined
};

PictureResult make_pictures(PictureStage& stage, const PictureRequest& request, Draws& draws,
                            const MaskingObserver& observer = {});

// kept tokens of a mask over pixels: a token is made anew when any pixel of its patch is to be. mask bool
// [batch, height, width], true: to be made anew -> bool [batch, grid rows, grid columns]
at::Tensor kept_tokens(const at::Tensor& mask, int64_t pixels_per_token);

}  // namespace melete::muse

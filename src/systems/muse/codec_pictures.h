// A trained VQ-GAN as a codec of pictures: folders of pictures to folders of tokens and back, and how good
// that is beside JPEG and WebP. MaskGit trains on such a folder as well as on the pictures themselves.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "data/base/manifest.h"
#include "data/pictures.h"
#include "data/token_folder.h"
#include "systems/muse/picture_tokenizer.h"

namespace melete::muse {

struct PictureEncoding {
  std::shared_ptr<const PictureTokenizer> tokenizer;
  PicturePreparation prepare;  // never mirrored, cut in the middle
  // Super-resolution: tokens of the same picture at a smaller size, "condition". 0: none.
  std::shared_ptr<const PictureTokenizer> smaller;
  int64_t smaller_height = 0;

  int64_t width() const { return prepare.width > 0 ? prepare.width : prepare.height; }
  int64_t smaller_width() const { return smaller_height * width() / prepare.height; }
  // "tokens" int64 [positions] row by row, "grid" its rows and columns, and "condition" where it is asked
  // for; words "path" and "text".
  TokenColumns columns() const;
};

using OnPictureProblem = std::function<void(const std::string& path, const std::string& message)>;
struct EncodedPictures {
  int64_t pictures = 0, left_out = 0, there_already = 0;  // left out: cannot be read
  int64_t damaged = 0;                                    // of the pictures; shown as far as they go
};
// Goes on where an earlier one left off; see TokenFolderWriter.
EncodedPictures encode_pictures(const PictureEncoding& how, const std::vector<ManifestEntry>& pictures,
                                const std::string& folder, const ProgressCallback& progress = {},
                                const OnPictureProblem& on_problem = {});

// PNG files below `out`, in the tree that the pictures lay in. Tokens of another model are an Error.
int64_t decode_pictures(const PictureTokenizer& tokenizer, const std::string& tokens, const std::string& out,
                        const ProgressCallback& progress = {});

// One way of storing pictures: means over all of them.
struct PictureRate {
  std::string name;
  double bits_per_pixel = 0, psnr = 0, ssim = 0;
};
struct PictureEval {
  int64_t pictures = 0, damaged = 0;    // damaged: of these, shown as far as they go
  std::vector<PictureRate> rates;       // tokens first
  double code_use = 0, perplexity = 0;  // of all tokens together; mean over codebooks
  std::vector<at::Tensor> shown;        // of the first pictures: itself, then as each rate shows it
  int64_t shown_columns = 0;
};
// JPEG and WebP twice each: in as many bytes as the tokens take (or the fewest that they can do with), and in
// as many as it takes to come as near to the picture.
PictureEval eval_pictures(const PictureEncoding& how, const std::vector<ManifestEntry>& pictures,
                          const ProgressCallback& progress = {}, int64_t shown = 8,
                          const OnPictureProblem& on_problem = {});

}  // namespace melete::muse

// From runs and checkpoints to models that are ready to use.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "roles/text_encoder.h"
#include "run/load_weights.h"
#include "systems/muse/picture_tokenizer.h"
#include "systems/muse/texted_maskgit.h"

namespace melete::muse {

// From a run or checkpoint of `vqgan`; the file alone is enough.
std::shared_ptr<const PictureTokenizer> open_picture_tokenizer(const std::string& run_or_checkpoint,
                                                               Weights weights = Weights::best,
                                                               at::Device device = at::kCPU);

// Of the pictures that a run of `vqgan` or `maskgit` was trained on.
struct TrainedSize {
  int64_t height = 0, width = 0;
};
TrainedSize trained_size(const std::string& run_or_checkpoint);

// A run of `maskgit` with all that it was trained with.
struct LoadedMaskGit {
  TextedMaskGit model{nullptr};                               // in eval mode
  std::shared_ptr<const PictureTokenizer> pictures, smaller;  // smaller: none, or super-resolution's
  std::shared_ptr<const TextEncoder> text;                    // none: the model has its own
  int64_t height = 0, width = 0, smaller_height = 0, smaller_width = 0;

  at::Tensor read(const std::vector<std::string>& texts);  // as TextedMaskGitImpl::text
};

// Where its parts are; empty: where the run says.
struct MaskGitPaths {
  std::string run, vqgan, smaller_vqgan, text_encoder;
  std::string flags = "--";  // what stands before the names of these in messages: "--large_"
};
LoadedMaskGit load_maskgit_run(const MaskGitPaths& paths, Weights weights = Weights::best,
                               at::Device device = at::kCPU);

}  // namespace melete::muse

// A MaskGit and what reads its text: features of a frozen encoder come with the batch, or a small encoder is trained
// along with it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "nn/small_text_encoder.h"
#include "roles/text_encoder.h"
#include "run/load_weights.h"
#include "systems/muse/maskgit.h"
#include "systems/muse/picture_tokenizer.h"

namespace melete::muse {

struct TextedMaskGitConfig {
  MaskGitConfig maskgit;
  SmallTextEncoderConfig text;
};
void describe(Schema& schema, TextedMaskGitConfig& config);

struct TextedMaskGitImpl : torch::nn::Module {
  explicit TextedMaskGitImpl(const TextedMaskGitConfig& config);

  // [batch, length, text_dim]. features: what a frozen encoder made of the texts, where there is no encoder here.
  at::Tensor text(const std::vector<std::string>& texts, const at::Tensor& features, Draws* draws = nullptr);

  const TextedMaskGitConfig& config() const { return config_; }

  MaskGit maskgit{nullptr};
  SmallTextEncoder text_encoder{nullptr};  // none: text comes as features

 private:
  TextedMaskGitConfig config_;
};
TORCH_MODULE(TextedMaskGit);

// A run of `maskgit` with all that it was trained with.
struct LoadedMaskGit {
  TextedMaskGit model{nullptr};  // in eval mode
  std::shared_ptr<const PictureTokenizer> pictures, smaller;  // smaller: none, or super-resolution's
  std::shared_ptr<const TextEncoder> text;                    // none: the model has its own
  int64_t height = 0, width = 0, smaller_height = 0, smaller_width = 0;

  at::Tensor read(const std::vector<std::string>& texts);  // as TextedMaskGitImpl::text
};

// Where its parts are; empty: where the run says.
struct MaskGitPaths {
  std::string run, vqgan, smaller_vqgan, text_encoder;
};
LoadedMaskGit load_maskgit_run(const MaskGitPaths& paths, Weights weights = Weights::best);

}  // namespace melete::muse

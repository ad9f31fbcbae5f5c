// A MaskGit and what reads its text: features of a frozen encoder come with the batch, or a small encoder is
// trained along with it.
#pragma once

#include <string>
#include <vector>

#include "nn/small_text_encoder.h"
#include "systems/muse/maskgit.h"

namespace melete::muse {

struct TextedMaskGitConfig {
  MaskGitConfig maskgit;
  SmallTextEncoderConfig text;
};
void describe(Schema& schema, TextedMaskGitConfig& config);

struct TextedMaskGitImpl : torch::nn::Module {
  explicit TextedMaskGitImpl(const TextedMaskGitConfig& config);

  // [batch, length, text_dim]. features: what a frozen encoder made of the texts, where there is no encoder
  // here.
  at::Tensor text(const std::vector<std::string>& texts, const at::Tensor& features, Draws* draws = nullptr);

  const TextedMaskGitConfig& config() const { return config_; }

  MaskGit maskgit{nullptr};
  SmallTextEncoder text_encoder{nullptr};  // none: text comes as features

 private:
  TextedMaskGitConfig config_;
};
TORCH_MODULE(TextedMaskGit);

}  // namespace melete::muse

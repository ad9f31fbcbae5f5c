// A trained MaskGit as what iterative decoding asks for, with guidance towards a text (and away from
// another).
#pragma once

#include "generate/iterative_masking.h"
#include "systems/muse/maskgit.h"

namespace melete::muse {

struct Guidance {
  double scale = 3;  // how far beyond what it would say without the text; 1: no guidance
  // muse-maskgit-pytorch's way: a self-critic is asked without guidance.
  bool plain_self_critic = false;
};

class GuidedMaskGit : public MaskedModel {
 public:
  // text [rows, length, text_dim]; negative: the text to lead away from, as many rows, or undefined for none
  // at all; condition [rows, n] int64 or undefined. Keys and values of all of it are computed here, once.
  GuidedMaskGit(MaskGit model, const at::Tensor& text, const at::Tensor& negative,
                const at::Tensor& condition, const Guidance& guidance);

  int64_t mask_token() const override { return model_->transformer->mask_token(); }
  at::Tensor logits(const at::Tensor& tokens) override;
  bool has_critic() const override { return model_->has_critic(); }
  at::Tensor doubts(const at::Tensor& tokens) override;

 private:
  // The text's rows and, for guidance, those that it is led away from, in one batch.
  struct Contexts {
    MaskGitContext with_text, both;
  };
  Contexts contexts(MaskGitTransformerImpl& reader, const at::Tensor& text, const at::Tensor& negative,
                    const at::Tensor& condition) const;
  // Both halves of an embedding into one. What follows is linear, so it may as well be guided here.
  at::Tensor guided(const at::Tensor& both) const;

  MaskGit model_;
  Guidance guidance_;
  bool guides_;
  Contexts read_, read_by_critic_;
  at::Tensor last_;  // embedding of the text's rows, for self-conditioning
};

}  // namespace melete::muse

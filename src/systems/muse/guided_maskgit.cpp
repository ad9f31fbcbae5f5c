#include "systems/muse/guided_maskgit.h"

#include "core/base/error.h"

namespace melete::muse {

GuidedMaskGit::GuidedMaskGit(MaskGit model, const at::Tensor& text, const at::Tensor& negative,
                             const at::Tensor& condition, const Guidance& guidance)
    : model_(std::move(model)), guidance_(guidance), guides_(guidance.scale != 1) {
  const at::NoGradGuard no_grad;
  require(!negative.defined() || negative.size(0) == text.size(0),
          "[muse] expected a negative text for every text: {}, got {}", text.size(0),
          negative.defined() ? negative.size(0) : 0);
  read_ = contexts(*model_->transformer, text, negative, condition);
  if (!model_->has_critic()) return;
  read_by_critic_ = model_->critic.is_empty() ? read_ : contexts(*model_->critic, text, negative, condition);
}

GuidedMaskGit::Contexts GuidedMaskGit::contexts(MaskGitTransformerImpl& reader, const at::Tensor& text,
                                                const at::Tensor& negative,
                                                const at::Tensor& condition) const {
  Contexts result;
  result.with_text = reader.context(text, condition);
  if (guides_)
    result.both = result.with_text.followed_by(negative.defined() ? reader.context(negative, condition)
                                                                  : result.with_text.without_text());
  return result;
}

at::Tensor GuidedMaskGit::guided(const at::Tensor& both) const {
  const auto halves = both.chunk(2, 0);  // with the text, without it
  return halves[1] + (halves[0] - halves[1]) * guidance_.scale;
}

at::Tensor GuidedMaskGit::logits(const at::Tensor& tokens) {
  const at::NoGradGuard no_grad;
  auto& transformer = *model_->transformer;
  const bool remembers = transformer.config().self_condition;
  if (!guides_) {
    const at::Tensor embedded = transformer.embed(tokens, read_.with_text, last_);
    if (remembers) last_ = embedded;
    return transformer.predict(embedded);
  }
  const at::Tensor both = transformer.embed(tokens, read_.both, last_);
  if (remembers) last_ = both.narrow(0, 0, tokens.size(0));
  return transformer.predict(guided(both));
}

at::Tensor GuidedMaskGit::doubts(const at::Tensor& tokens) {
  const at::NoGradGuard no_grad;
  const bool plain = !guides_ || (model_->critic.is_empty() && guidance_.plain_self_critic);
  if (plain) return model_->doubt(tokens, read_by_critic_.with_text);
  // The critic's last layer is linear: guided doubts are doubts of a guided embedding.
  auto& reader = model_->critic_reader();
  return model_->doubt_of(guided(reader.embed(tokens, read_by_critic_.both)));
}

}  // namespace melete::muse

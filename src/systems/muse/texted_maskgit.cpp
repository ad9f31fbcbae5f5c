#include "systems/muse/texted_maskgit.h"

#include "core/base/error.h"

namespace melete::muse {

void describe(Schema& s, TextedMaskGitConfig& c) {
  describe(s, c.maskgit);
  s.section("text", c.text, "a text encoder that is trained along");
}

TextedMaskGitImpl::TextedMaskGitImpl(const TextedMaskGitConfig& config) : config_(config) {
  maskgit = register_module("maskgit", MaskGit(config.maskgit));
  if (!config.text.enabled()) return;
  require(config.text.dim == config.maskgit.transformer.text_dim,
          "[model.transformer.text_dim] expected {} as model.text.dim, got {}", config.text.dim,
          config.maskgit.transformer.text_dim);
  text_encoder = register_module("text_encoder", SmallTextEncoder(config.text));
}

at::Tensor TextedMaskGitImpl::text(const std::vector<std::string>& texts, const at::Tensor& features,
                                   Draws* draws) {
  if (!text_encoder.is_empty()) return text_encoder->forward(texts, draws).embeddings;
  require(features.defined(),
          "[maskgit] this model reads the features of a frozen text encoder, and there are none");
  return features;
}

}  // namespace melete::muse

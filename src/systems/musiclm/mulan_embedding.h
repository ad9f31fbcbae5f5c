// A trained MuLaN as a tool: sound and words to unit vectors.
#pragma once

#include <memory>

#include "roles/joint_embedding.h"
#include "systems/musiclm/mulan.h"

namespace melete {
class TextTokenizer;
}

namespace melete::musiclm {

struct EmbeddingOptions {
  // Longer recordings are cut into windows of equal length, whose vectors are averaged; 0: never.
  double window_seconds = 10;
};

class MulanEmbedding final : public JointEmbedding {
 public:
  // The model is put in eval mode and must not be trained any more.
  MulanEmbedding(Mulan model, std::shared_ptr<const TextTokenizer> tokenizer,
                 const EmbeddingOptions& options = {});

  std::string kind() const override { return "mulan"; }
  int64_t dim() const override { return model_->config().dim; }
  int64_t rate_hz() const override { return model_->config().sample_rate_hz; }
  int64_t shortest_samples() const override { return model_->audio->shortest(); }
  const std::string& identity() const override { return identity_; }
  at::Tensor embed_audio(const at::Tensor& audio, int64_t audio_rate_hz,
                         const at::Tensor& lengths = {}) const override;
  at::Tensor embed_text(const std::vector<std::string>& texts) const override;
  TextFit fit(const std::string& text) const override;
  void move_to(at::Device device) override { model_->to(device); }

  const Mulan& model() const { return model_; }
  double scale() const;  // what training has learned to multiply products with before a softmax

 private:
  at::Tensor embed_windows(const std::vector<at::Tensor>& pieces) const;  // [samples] each -> [pieces, dim]

  mutable Mulan model_;
  std::shared_ptr<const TextTokenizer> tokenizer_;
  EmbeddingOptions options_;
  std::string identity_;
};

}  // namespace melete::musiclm

// AudioLM's first stage: what comes next in a sequence of semantic tokens.
#pragma once

#include "systems/audiolm/stage.h"

namespace melete {

struct SemanticConfig {
  StageConfig stage;
  int64_t semantic_tokens = 500;  // the tokenizer's codebook size; one more id is the end
};
void describe(Schema& schema, SemanticConfig& config);

class SemanticTransformerImpl : public StageImpl {
 public:
  explicit SemanticTransformerImpl(const SemanticConfig& config);

  // ids [batch, n], -1 is padding -> logits of the token after each prefix [batch, n + 1, tokens + 1].
  // pass.seen covers the start token and the ids: [batch, n + 1].
  at::Tensor forward(const at::Tensor& ids, const StagePass& pass);

  at::Tensor embed(const at::Tensor& ids) { return embed_padded(ids, embedding); }
  // By distance, for causal_bias; undefined without one.
  at::Tensor bias_table(int64_t positions);

  const SemanticConfig& config() const { return config_; }
  int64_t end_id() const { return config_.semantic_tokens; }

  at::Tensor start;  // [dim]
  torch::nn::Embedding embedding{nullptr};
  BiasNetwork position_bias{nullptr};
  torch::nn::Linear logits{nullptr};

 private:
  SemanticConfig config_;
};
TORCH_MODULE(SemanticTransformer);

}  // namespace melete

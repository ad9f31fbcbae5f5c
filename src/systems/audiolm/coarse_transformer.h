// AudioLM's second stage: coarse acoustic tokens after the semantic tokens of the same sound.
#pragma once

#include "systems/audiolm/stage.h"

namespace melete {

struct CoarseConfig {
  StageConfig stage;
  int64_t semantic_tokens = 500;
  int64_t codebook_size = 1024;  // of the codec; one more id is the end
  int64_t quantizers = 3;        // of the codec, the first ones
  bool predict_semantic = true;  // logits of the semantic part, too
};
void describe(Schema& schema, CoarseConfig& config);

struct CoarseLogits {
  at::Tensor semantic;  // [batch, semantic length, tokens + 1] or undefined
  at::Tensor coarse;    // [batch, coarse length + 1, codebook_size + 1]
};

class CoarseTransformerImpl : public StageImpl {
 public:
  explicit CoarseTransformerImpl(const CoarseConfig& config);

  // semantic [batch, s], -1 is padding; coarse [batch, c], frame by frame, -1 only at the end.
  // pass.seen covers start, semantic, start, coarse: [batch, s + c + 2].
  CoarseLogits forward(const at::Tensor& semantic, const at::Tensor& coarse, const StagePass& pass);

  // Start, semantic, start, coarse -> [batch, s + c + 2, dim]
  at::Tensor embed(const at::Tensor& semantic, const at::Tensor& coarse);
  // Codes whose first is of quantizer `first` -> [batch, n, dim]
  at::Tensor embed_coarse(const at::Tensor& codes, int64_t first = 0);
  at::Tensor bias_table(int64_t positions);  // by distance; undefined without one
  // Rows [from, to) of the bias after a semantic part of s tokens: between the two parts it is one value a
  // head.
  at::Tensor bias(const at::Tensor& table, int64_t semantic, int64_t from, int64_t to);

  const CoarseConfig& config() const { return config_; }
  int64_t semantic_end_id() const { return config_.semantic_tokens; }
  int64_t end_id() const { return config_.codebook_size; }

  at::Tensor semantic_start, coarse_start;  // [dim]
  at::Tensor cross_bias;                    // [heads, 1, 1]
  at::Tensor coarse_logits;                 // [quantizers, codebook_size + 1, dim]
  torch::nn::Embedding semantic_embedding{nullptr}, coarse_embedding{nullptr}, quantizer_embedding{nullptr};
  BiasNetwork position_bias{nullptr};
  torch::nn::Linear semantic_logits{nullptr};

 private:
  CoarseConfig config_;
};
TORCH_MODULE(CoarseTransformer);

}  // namespace melete

// AudioLM's third stage: the remaining quantizers of the codec after the coarse ones.
#pragma once

#include "systems/audiolm/stage.h"

namespace melete {

struct FineConfig {
  StageConfig stage;
  int64_t codebook_size = 1024;
  int64_t coarse_quantizers = 3;
  int64_t fine_quantizers = 5;
  bool predict_coarse = true;  // logits of the coarse part, too
  // audiolm-pytorch counts differences of positions from the longest negative one, so that the bias of two
  // tokens changes with the length of the sequence.
  bool positions_from_longest = false;
};
void describe(Schema& schema, FineConfig& config);

struct FineLogits {
  at::Tensor coarse;  // [batch, coarse length, codebook_size] or undefined
  at::Tensor fine;    // [batch, fine length + 1, codebook_size]
};

class FineTransformerImpl : public StageImpl {
 public:
  explicit FineTransformerImpl(const FineConfig& config);

  // coarse [batch, c] and fine [batch, f], frame by frame; coarse ids that are padding or the end are not
  // looked at. pass.seen covers start, coarse, start, fine: [batch, c + f + 2].
  FineLogits forward(const at::Tensor& coarse, const at::Tensor& fine, const StagePass& pass);

  // Start, coarse, start, fine -> [batch, c + f + 2, dim]
  at::Tensor embed(const at::Tensor& coarse, const at::Tensor& fine);
  at::Tensor embed_fine(const at::Tensor& codes, int64_t first = 0);  // the first is of quantizer `first`
  // Which of start, coarse, start, and `fine` more may be looked at: bool [batch, c + fine + 2]
  at::Tensor seen(const at::Tensor& coarse, int64_t fine) const;

  // Positions in a sequence of c coarse tokens: their frame and quantizer. The bias is a function of the
  // differences of both, evaluated once for all that there are; start tokens have one of their own.
  struct Positions {
    at::Tensor
        place;  // int64 [n]: frame and quantizer as one number, whose differences count the table's rows
    at::Tensor start;    // bool [n]: it is a start token
    at::Tensor table;    // [differences, heads]
    int64_t middle = 0;  // the row for no difference
  };
  Positions positions(int64_t coarse, int64_t fine);
  at::Tensor bias(const Positions& positions, int64_t from, int64_t to);  // rows, as in causal_bias

  const FineConfig& config() const { return config_; }
  int64_t end_id() const { return config_.codebook_size; }

  at::Tensor coarse_start, fine_start;    // [dim]
  at::Tensor start_bias;                  // [heads, 1, 1]
  at::Tensor coarse_logits, fine_logits;  // [quantizers, codebook_size, dim]
  torch::nn::Embedding coarse_embedding{nullptr}, fine_embedding{nullptr};
  torch::nn::Embedding coarse_quantizer_embedding{nullptr}, fine_quantizer_embedding{nullptr};
  BiasNetwork position_bias{nullptr};

 private:
  FineConfig config_;
};
TORCH_MODULE(FineTransformer);

}  // namespace melete

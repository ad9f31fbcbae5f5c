// A few positions at a time through the writer, for generation on the CPU: weights are packed once, and a
// step calls no operator between its matrix products. Limited by how fast the weights can be read.
#pragma once

#include <vector>

#include "kernels/few_rows.h"
#include "systems/spear_tts/text_to_semantic.h"

namespace melete::spear_tts {

// A feed-forward part for a few rows; x [rows, dim] is float32, side by side.
class FeedForwardStep {
 public:
  FeedForwardStep(FeedForwardImpl& part, WeightStorage storage);
  void add_to(const at::Tensor& x) const;  // x += what the part makes of it

 private:
  RowWeights input_, output_;
  at::Tensor norm_, input_bias_, output_bias_;
};

class DecoderStep {
 public:
  // Whether this is for that writer: float32 on the CPU, without autocast.
  static bool fits(TransformerImpl& writer);

  DecoderStep(TransformerImpl& writer, WeightStorage storage);

  // The positions first[row], first[row] + 1, ... of each row through some layers, as TransformerImpl::run
  // does it: what is before them must be in the cache, to which they are added. Any number of positions, but
  // weights are read once for every kFewRows of them.
  // x [rows, n, dim] -> [rows, n, dim], not normalised
  at::Tensor forward(const at::Tensor& x, const std::vector<int64_t>& first, LayerRange range, Cache& cache);

 private:
  struct Layer {
    RowWeights query, key_value, output;
    RowWeights cross_query, cross_output;
    at::Tensor norm, cross_norm;
    at::Tensor null_value;  // [heads * head_dim]: what rows without a context find
    FeedForwardStep feed_forward;
  };
  struct Work;

  void attend_own(const Layer& layer, const Cache::Layer& kept, const Cache& cache, Work& work) const;
  void attend_context(const Layer& layer, const Cache::Layer& kept, const Cache& cache, Work& work) const;

  TransformerConfig config_;
  std::vector<Layer> layers_;
};

// The early exit for a few rows.
class EarlyExitStep {
 public:
  EarlyExitStep(EarlyExitImpl& exit, WeightStorage storage);
  at::Tensor operator()(const at::Tensor& stream) const;  // [rows, dim] -> [rows, classes]

 private:
  FeedForwardStep feed_forward_;
  at::Tensor norm_;
  RowWeights output_;
};

}  // namespace melete::spear_tts

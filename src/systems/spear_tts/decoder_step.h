// One position at a time through the writer, for generation on the CPU: weights are packed once, and a step
// calls no operator between its matrix products. Limited by how fast the weights can be read.
#pragma once

#include <vector>

#include "kernels/few_rows.h"
#include "systems/spear_tts/transformer.h"

namespace melete::spear_tts {

class DecoderStep {
 public:
  // Whether this is for that writer and so many rows: float32 on the CPU, without autocast.
  static bool fits(TransformerImpl& writer, int64_t rows);

  DecoderStep(TransformerImpl& writer, WeightStorage storage);

  // The position positions[row] of each row through some layers, as TransformerImpl::run does it: what is
  // before it must be in the cache, to which it is added. x [rows, dim] -> [rows, dim], not normalised
  at::Tensor forward(const at::Tensor& x, const std::vector<int64_t>& positions, LayerRange range,
                     Cache& cache);

 private:
  struct Layer {
    RowWeights query, key_value, output;
    RowWeights cross_query, cross_output;
    RowWeights input, feed_output;
    at::Tensor norm, cross_norm, feed_norm, input_bias, feed_bias;
    at::Tensor null_value;  // [heads * head_dim]: what rows without a context find
  };
  struct Buffers;

  void attend_own(const Layer& layer, const Cache::Layer& kept, const std::vector<int64_t>& positions,
                  const Rotation& rotation, Buffers& buffers) const;
  void attend_context(const Layer& layer, const Cache::Layer& kept, const Cache& cache,
                      Buffers& buffers) const;
  void feed_forward(const Layer& layer, Buffers& buffers) const;

  TransformerConfig config_;
  std::vector<Layer> layers_;
};

}  // namespace melete::spear_tts

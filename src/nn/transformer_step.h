// One position at a time through a transformer, for generation on the CPU: weights are packed and buffers
// made once, and a step calls no operator. Limited by how fast the weights can be read.
#pragma once

#include <vector>

#include "kernels/few_rows.h"
#include "nn/transformer.h"

namespace melete {

class TransformerStep {
 public:
  // Whether this is for that model and so many rows: float32 on the CPU, without autocast.
  static bool fits(TransformerImpl& model, int64_t rows);

  // What steps may look at: seen, bool [rows, capacity] or undefined (all), and the context that the cache
  // was filled with; capacity: positions there will be, without a prefix.
  TransformerStep(TransformerImpl& model, int64_t capacity, const at::Tensor& seen, const Context& context,
                  WeightStorage storage);

  // The position after those in the cache, which grows by it: x [rows, dim] -> [rows, dim], normalised.
  // bias [heads or 1, keys without a prefix]
  at::Tensor forward(const at::Tensor& x, const at::Tensor& bias, TransformerCache& cache);

 private:
  struct Heads {
    RowWeights query, key_value, output;
    at::Tensor norm;
  };
  struct Layer {
    Heads own, cross;
    RowWeights input, output;
    at::Tensor norm, inner_norm;
  };
  struct Buffers;

  Heads pack(AttentionImpl& attention, WeightStorage storage) const;
  void attend(const Heads& heads, const at::Tensor& pairs, int64_t keys, const float* bias, int64_t bias_step,
              const at::Tensor& hidden, Buffers& buffers) const;

  TransformerConfig config_;
  std::vector<Layer> layers_;
  at::Tensor norm_;
  int64_t prefix_ = 0;
  at::Tensor hidden_, cross_hidden_;  // bool [rows, prefix + capacity], [rows, 1 + context], or undefined
};

}  // namespace melete

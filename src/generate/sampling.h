// From logits to the next token.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <string_view>
#include <vector>

#include "nn/draws.h"

namespace melete {

class Schema;

struct SamplingConfig {
  double temperature = 1;  // below 1: safer, above: wilder; 0: always the likeliest
  int64_t top_k = 0;       // only the k likeliest; 0: as `filter` says
  double top_p = 1;        // of those, the likeliest whose probabilities reach this sum
  double filter = 0.9;     // share of the vocabulary that is never taken, where top_k is 0
  double guidance = 3;     // how far to go from the unconditioned prediction to the conditioned; 1: just that
};
void describe(Schema& schema, SamplingConfig& config);

// What may be taken, logits [..., classes] over the temperature, and -inf for all else: its softmax is what
// sample() draws from.
at::Tensor filtered_logits(const at::Tensor& logits, const SamplingConfig& config);

// logits [batch, classes] -> int64 [batch], by the Gumbel-max rule on one uniform draw a class
at::Tensor sample(const at::Tensor& logits, const SamplingConfig& config, Draws& draws);

// Each row of a batch has draws of its own, so that it is the same whatever stands beside it.
class RowDraws : public Draws {
 public:
  // Row i of the batch is item first_row + i of the seed.
  RowDraws(uint64_t seed, std::string_view purpose, int64_t rows, int64_t first_row = 0);
  int64_t integer(std::string_view what, int64_t low, int64_t high) override;
  at::Tensor rows(std::string_view what, int64_t population, int64_t count) override;
  at::Tensor uniform(std::string_view what, at::IntArrayRef shape) override;
  at::Tensor normal(std::string_view what, at::IntArrayRef shape) override;

 private:
  template <class Draw>
  at::Tensor by_row(at::IntArrayRef shape, Draw draw);

  std::vector<SeededDraws> rows_;
};

}  // namespace melete

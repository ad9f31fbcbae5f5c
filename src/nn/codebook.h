// A codebook learned by exponential moving averages of the vectors that choose each code.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <vector>

#include "dist/group_member.h"
#include "nn/draws.h"

namespace melete {

struct CodebookConfig {
  int64_t size = 1024;
  int64_t dim = 512;
  double decay = 0.95;          // of the moving averages
  double epsilon = 1e-5;        // smooths the counts of rare codes
  bool kmeans_init = true;      // the first training batch places the codes
  bool kmeans_in_eval = false;  // or the first batch of all, as in audiolm-pytorch, where it comes with draws
  int64_t kmeans_iterations = 10;
  double dead_code_threshold = 2;  // a code chosen less often than this (moving average) is revived; 0: never
  bool cosine = false;             // unit vectors compared by angle instead of distance
  bool stochastic = false;         // in training, draw codes by distance instead of taking the nearest
  double temperature = 1;          // of that draw
};

// In a group of several ranks it follows the vectors of all of them, and is the same on every rank.
struct CodebookImpl : torch::nn::Module, GroupMember {
  explicit CodebookImpl(const CodebookConfig& config);

  struct Choice {
    at::Tensor vectors;  // [rows, dim] without gradient
    at::Tensor codes;    // [rows] int64
  };
  // x [rows, dim] float32 (unit length when cosine). In training, and when `update` is set, the codebook
  // follows x.
  Choice forward(const at::Tensor& x, Draws* draws, bool update);

  at::Tensor embedding;      // [size, dim]
  at::Tensor embedding_sum;  // moving average of the sum of the vectors of each code
  at::Tensor counts;         // [size] moving average of how many chose each code
  at::Tensor initialised;    // [1] 0 or 1

 private:
  struct Gathered;
  Gathered gather_all(const at::Tensor& x, const at::Tensor& codes) const;
  at::Tensor rows_of_all(const at::Tensor& x, const std::vector<int64_t>& rows_of_ranks,
                         const at::Tensor& wanted) const;
  at::Tensor nearest(const at::Tensor& x, Draws* draws);
  void initialise(const at::Tensor& x, Draws& draws);
  void follow(const at::Tensor& x, const at::Tensor& codes, Draws& draws);
  void revive_dead_codes(const at::Tensor& x, const std::vector<int64_t>& rows, Draws& draws);

  CodebookConfig config_;
};
TORCH_MODULE(Codebook);

// x / |x| over the last dimension
at::Tensor unit_vectors(const at::Tensor& x);

}  // namespace melete

// Codebooks whose codes follow the vectors that choose them (by moving averages), or learn by gradient.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <string>
#include <vector>

#include "dist/group_member.h"
#include "nn/draws.h"

namespace melete {

struct CodebookConfig {
  int64_t size = 1024;
  int64_t dim = 512;
  int64_t books = 1;            // separate codebooks side by side, one a head
  bool moving_average = true;   // codes follow the vectors that choose them
  bool learnable = false;       // codes are a parameter, and the chosen vectors pass gradients on to it
  bool seen_is_kept = false;    // a loss looks at Choice::seen after the averages have moved the codes
  double decay = 0.95;          // of the moving averages
  double epsilon = 1e-5;        // smooths the counts of rare codes
  bool kmeans_init = true;      // the first training batch places the codes
  bool kmeans_in_eval = false;  // or the first batch of all, as in audiolm-pytorch, where it comes with draws
  int64_t kmeans_iterations = 10;
  double dead_code_threshold = 2;  // a code chosen less often than this (moving average) is revived; 0: never
  bool cosine = false;             // unit vectors compared by angle instead of distance
  bool stochastic = false;         // in training, draw codes by distance instead of taking the nearest
  double temperature = 1;          // of that draw, and of the choice's softmax below
  // In training, the choice passes gradients on to what was compared as a softmax would; of second order by
  // ReinMax (Liu et al. 2023).
  bool differentiable_choice = false;
  bool reinmax = false;
  // Codes are seen through an affine map that gives them the mean and spread of the vectors (Huh et al.
  // 2023).
  bool affine = false;
  double affine_vectors_decay = 0.99;
  double affine_codes_decay = 0.9;
};

// What a buffer [1] of 0 or 1 says, read from its device only after somebody has written to it.
class HostFlag {
 public:
  bool read(const at::Tensor& flag);

 private:
  int64_t version_ = -1;
  bool value_ = false;
};

// In a group of several ranks it follows the vectors of all of them, and is the same on every rank.
struct CodebookImpl : torch::nn::Module, GroupMember {
  explicit CodebookImpl(const CodebookConfig& config);

  struct Choice {
    at::Tensor vectors;  // [books, rows, dim]; a gradient leads to learnable codes only
    at::Tensor codes;    // [books, rows] int64
    at::Tensor seen;     // [books, size, dim] the codes that x was compared with
  };
  // x [books, rows, dim] float32 (unit length when cosine). In training, and when `update` is set, the
  // codebooks follow those rows of x that count (bool [rows]; undefined: all). chosen: [books, rows] int64,
  // of codes that somebody else has chosen; undefined: the nearest.
  Choice forward(const at::Tensor& x, Draws* draws, bool update, const at::Tensor& counted = {},
                 const at::Tensor& chosen = {});
  bool ready() { return known_initialised_.read(initialised); }  // its codes are placed

  // How near every code is, higher is nearer: cosine, or minus the distance. -> [books, rows, size]
  at::Tensor nearness(const at::Tensor& x, const at::Tensor& seen) const;
  // The same, but where a difference or product of x and a code is differentiated, the code is that of
  // `passing`.
  at::Tensor nearness(const at::Tensor& x, const at::Tensor& seen, const at::Tensor& passing) const;

  // codes [..., books] int64 -> [..., books * dim]
  at::Tensor vectors(const at::Tensor& codes) const;

  at::Tensor codes_seen() const;  // [books, size, dim]: what vectors are compared with

  const CodebookConfig& config() const { return config_; }

  // One book below the other.
  at::Tensor embedding;      // [books * size, dim]
  at::Tensor embedding_sum;  // moving average of the sum of the vectors of each code
  at::Tensor counts;         // [books * size] moving average of how many chose each code
  at::Tensor initialised;    // [1] 0 or 1
  // Of the affine map only: moving averages, [books, dim] each, and whether they have begun.
  at::Tensor vectors_mean, vectors_variance, codes_mean, codes_variance;
  at::Tensor vectors_begun, codes_begun;  // [1] 0 or 1

 private:
  struct Gathered;
  at::Tensor book(const at::Tensor& all, int64_t index) const;  // the rows of one book
  Gathered gather_all(const at::Tensor& x, const at::Tensor& codes, int64_t rows_here) const;
  at::Tensor rows_of_all(const at::Tensor& x, const std::vector<int64_t>& rows_of_ranks,
                         const at::Tensor& wanted) const;
  at::Tensor choose(const at::Tensor& x, const at::Tensor& seen, Draws* draws) const;
  at::Tensor look_up(const at::Tensor& x, const at::Tensor& seen, const at::Tensor& codes) const;
  void initialise(const at::Tensor& x, Draws& draws);
  void follow(const at::Tensor& x, const at::Tensor& codes, const at::Tensor& counted, Draws& draws);
  void revive_dead_codes(const at::Tensor& x, const std::vector<int64_t>& rows, Draws& draws);
  void revive_without_waiting(const at::Tensor& x, const std::vector<int64_t>& rows, const at::Tensor& sound,
                              Draws& draws);
  void follow_moments(const at::Tensor& x, bool of_codes);

  CodebookConfig config_;
  HostFlag known_initialised_;
};
TORCH_MODULE(Codebook);

// Whether that is the name, in any model, of a codebook's codes or statistics. They are moving averages
// already and jump when a code is revived: an average of weights that takes them in lags behind its encoder.
inline bool of_codebook(const std::string& name) {
  return name.find(".codebook.") != std::string::npos;
}

// x / |x| over the last dimension
at::Tensor unit_vectors(const at::Tensor& x);

}  // namespace melete

// Adam, or AdamW when there is weight decay, or Lion, over named parameters. Tensors of fewer than two
// dimensions (biases, gains) are never decayed.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "io/tensors.h"

namespace melete {

class Group;
class Schema;

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

struct OptimiserConfig {
  std::string kind = "adam";  // adam, lion
  double learning_rate = 2e-4;
  double weight_decay = 0;
  double beta1 = 0.9;
  double beta2 = 0.99;
  double eps = 1e-8;
  int64_t decay_from_dimensions = 2;  // tensors of fewer dimensions (biases, gains) are not decayed
};

void describe(Schema& schema, OptimiserConfig& config);

class Optimiser {
 public:
  // With `shards`, every rank of that group keeps the moments of its own share of the elements only, moves
  // those, and gets the rest from the others (ZeRO stage 1); then step(), state() and load() are for all
  // ranks.
  Optimiser(NamedTensors parameters, const OptimiserConfig& config, Group* shards = nullptr);

  // Moves every parameter that has a gradient; `gradient_scale` multiplies gradients as they are read
  // (clipping).
  void step(double learning_rate, double gradient_scale = 1);
  void set_beta1(double beta1) { config_.beta1 = beta1; }  // for the steps that follow
  void clear_gradients();

  // Euclidean norm of all gradients as a float32 scalar on their device; zero when there are none.
  at::Tensor gradient_norm() const;

  // State by name, only of parameters that have moved: <prefix><parameter>.{first,second,step}; Lion has no
  // second.
  void state(TensorMap& tensors, const std::string& prefix) const;
  void load(const TensorMap& tensors, const std::string& prefix);

  const NamedTensors& parameters() const { return parameters_; }

 private:
  struct Moments {
    at::Tensor first, second;  // of the parameter's shape; sharded: flat, of this rank's share. Lion: first
    int64_t step = 0;
  };
  struct Share {
    int64_t begin = 0, end = 0;  // elements of a parameter, in the order of memory
  };
  bool has_second() const { return config_.kind != "lion"; }
  void move(size_t index, at::Tensor& parameter, const at::Tensor& gradient, double learning_rate,
            double gradient_scale);
  Share share_of(size_t index) const;
  void exchange_parameters();
  // Everyone's share of first or second moments, one after the other, in the order of parameters.
  at::Tensor gather_moments(at::Tensor Moments::*which) const;

  NamedTensors parameters_;
  std::vector<Moments> moments_;
  OptimiserConfig config_;
  Group* shards_ = nullptr;
  std::vector<int64_t> first_element_;  // sharded: where each parameter begins among all elements
  int64_t share_elements_ = 0;          // of every rank; the last ones may reach beyond the end
};

// Euclidean norm over the gradients of these parameters; those without one are left out.
at::Tensor gradient_norm(const std::vector<at::Tensor>& parameters);

// What to multiply gradients of this norm with so that it is at most max_norm (0: no limit, 1 is returned).
double clip_scale(double norm, double max_norm);

}  // namespace melete

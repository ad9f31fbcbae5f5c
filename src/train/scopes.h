// Two things that a training step changes for a while and must put back: which parameters gather gradients,
// and whether modules are in training mode.
#pragma once

#include <ATen/ATen.h>

#include <utility>
#include <vector>

namespace torch::nn {
class Module;
}

namespace melete {

// Of all the model's parameters only `wanted` require gradients, so that no other gradient is computed.
class GradientScope {
 public:
  GradientScope(torch::nn::Module& model, const std::vector<at::Tensor>& wanted);
  ~GradientScope();
  GradientScope(const GradientScope&) = delete;
  GradientScope& operator=(const GradientScope&) = delete;

 private:
  std::vector<std::pair<at::Tensor, bool>> before_;
};

// Evaluation mode for the whole model; afterwards every module is as it was.
class EvaluationScope {
 public:
  explicit EvaluationScope(torch::nn::Module& model);
  ~EvaluationScope();
  EvaluationScope(const EvaluationScope&) = delete;
  EvaluationScope& operator=(const EvaluationScope&) = delete;

 private:
  std::vector<std::pair<torch::nn::Module*, bool>> before_;
};

}  // namespace melete

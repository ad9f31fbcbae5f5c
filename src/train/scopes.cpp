#include "train/scopes.h"

#include <torch/nn/module.h>

#include <set>

namespace melete {

GradientScope::GradientScope(torch::nn::Module& model, const std::vector<at::Tensor>& wanted) {
  std::set<const void*> chosen;
  for (const at::Tensor& tensor : wanted) chosen.insert(tensor.unsafeGetTensorImpl());
  for (at::Tensor& parameter : model.parameters()) {
    before_.emplace_back(parameter, parameter.requires_grad());
    if (parameter.is_floating_point())
      parameter.set_requires_grad(chosen.count(parameter.unsafeGetTensorImpl()) > 0);
  }
}

GradientScope::~GradientScope() {
  for (auto& [parameter, required] : before_) parameter.set_requires_grad(required);
}

EvaluationScope::EvaluationScope(torch::nn::Module& model) {
  before_.emplace_back(&model, model.is_training());
  for (const auto& module : model.modules(/*include_self=*/false))
    before_.emplace_back(module.get(), module->is_training());
  model.eval();
}

EvaluationScope::~EvaluationScope() {
  // Parents come first and set their children too; a child that differed is put right when its turn comes.
  for (const auto& [module, training] : before_)
    if (module->is_training() != training) module->train(training);
}

}  // namespace melete

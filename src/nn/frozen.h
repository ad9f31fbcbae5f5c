// What models that are only used, never trained here, have in common.
#pragma once

#include <torch/nn/module.h>

#include <string>

#include "core/autocast.h"
#include "io/tensors.h"

namespace melete {

// Inside it there is no gradient and no mixed precision: a token must not depend on how the caller trains.
class FrozenScope {
 public:
  explicit FrozenScope(const at::Tensor& like) : autocast_(like.device().type(), false) {}
  FrozenScope() : autocast_(at::kCPU, false) {}

 private:
  at::NoGradGuard no_grad_;
  AutocastScope autocast_;
};

// What a weight [out, in, ...] of a model is before its own are loaded.
at::Tensor random_weight(at::IntArrayRef shape);

at::Device device_of(const torch::nn::Module& module);  // where its weights are; without any, the CPU
void freeze(torch::nn::Module& module);                 // eval mode, no parameter wants a gradient

// Parameters and buffers by name, not copied.
TensorMap tensors_of(const torch::nn::Module& module);

// Copies tensors into the module by its own names. Missing, superfluous and misshapen ones are Errors that
// name `where`.
void load_tensors(torch::nn::Module& module, const TensorMap& tensors, const std::string& where);

}  // namespace melete

// Activations by the names that configurations of published models use.
#pragma once

#include <ATen/ATen.h>

#include <string>
#include <vector>

namespace melete {

// "relu", "gelu" (exact), "gelu_new" (by tanh), "silu" or "swish", "selu", "tanh", "none".
const std::vector<std::string>& activation_names();
at::Tensor activate(const std::string& name, const at::Tensor& x);  // an unknown name is an Error

}  // namespace melete

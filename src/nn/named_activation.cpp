#include "nn/named_activation.h"

#include <fmt/ranges.h>

#include <cmath>
#include <utility>

#include "core/base/error.h"
#include "nn/activation.h"

namespace melete {

namespace {

using Function = at::Tensor (*)(const at::Tensor&);

// The approximation that Google's models were trained with.
at::Tensor gelu_by_tanh(const at::Tensor& x) {
  return 0.5 * x * (1 + at::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

const std::vector<std::pair<std::string, Function>>& table() {
  static const std::vector<std::pair<std::string, Function>> functions = {
      {"relu", [](const at::Tensor& x) { return at::relu(x); }},
      {"gelu", [](const at::Tensor& x) { return melete::gelu(x); }},
      {"gelu_new", gelu_by_tanh},
      {"silu", [](const at::Tensor& x) { return at::silu(x); }},
      {"swish", [](const at::Tensor& x) { return at::silu(x); }},
      {"selu", [](const at::Tensor& x) { return at::selu(x); }},
      {"tanh", [](const at::Tensor& x) { return at::tanh(x); }},
      {"none", [](const at::Tensor& x) { return x; }},
  };
  return functions;
}

}  // namespace

const std::vector<std::string>& activation_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> result;
    for (const auto& [name, function] : table()) result.push_back(name);
    return result;
  }();
  return names;
}

at::Tensor activate(const std::string& name, const at::Tensor& x) {
  for (const auto& [known, function] : table())
    if (known == name) return function(x);
  fail("[activation] expected one of {}, got `{}`", fmt::join(activation_names(), ", "), name);
}

}  // namespace melete

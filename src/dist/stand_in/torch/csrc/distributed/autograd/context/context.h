// Debian's libtorch-dev leaves this header out, and c10d's reducer.hpp includes it. The reducer needs two
// names from it; only pointers to the class are kept, so that its members do not matter here. Used only where
// the real header is missing (see CMakeLists.txt).
#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <memory>

namespace torch {
namespace distributed {
namespace autograd {

class DistAutogradContext {
 public:
  using GradCallback = std::function<bool(at::Tensor&)>;
};
using ContextPtr = std::shared_ptr<DistAutogradContext>;

}  // namespace autograd
}  // namespace distributed
}  // namespace torch

#include "dist/reducer.h"

#include <torch/csrc/autograd/custom_function.h>
#include <torch/version.h>

#include <torch/csrc/distributed/c10d/reducer.hpp>
#include <type_traits>

#include "core/base/error.h"
#include "dist/group_impl.h"

namespace melete {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Puts parameters into the graph without giving them a gradient. The reducer hears only of parameters in the
// last backward pass; one that only earlier micro-batches used would otherwise keep its own rank's gradient.
struct Touch : torch::autograd::Function<Touch> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& total,
                            const variable_list& parameters) {
    context->saved_data["count"] = static_cast<int64_t>(parameters.size());
    return total.clone();
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    variable_list result{gradients.front()};
    result.resize(1 + static_cast<size_t>(context->saved_data["count"].toInt()));
    return result;
  }
};

// c10d warns whenever a pass has left no parameter unused; here that is the usual case.
struct SilentWarnings : c10::WarningHandler {
#if TORCH_VERSION_MAJOR >= 2
  void process(const c10::Warning&) override {}
#else
  void process(const c10::SourceLocation&, const std::string&, const bool) override {}
#endif
};

// The constructor's arguments as LibTorch 1.13 takes them, for every later version: since 2.4 or so it wants
// no limits of buckets, later ones add switches (all off: as it was) and a list of limits (none: as it was).
template <class Parameters, class Buckets, class Limits, class... Rest>
std::unique_ptr<c10d::Reducer> make_reducer(Parameters parameters, Buckets buckets, Limits limits,
                                            Rest... rest) {
  using Caps = std::vector<int64_t>;
  const auto make = [&](auto... more) {
    return std::make_unique<c10d::Reducer>(std::move(parameters), std::move(buckets), more...);
  };
  if constexpr (std::is_constructible_v<c10d::Reducer, Parameters, Buckets, Limits, Rest...>)
    return make(std::move(limits), rest...);
  else if constexpr (std::is_constructible_v<c10d::Reducer, Parameters, Buckets, Rest...>)
    return make(rest...);
  else if constexpr (std::is_constructible_v<c10d::Reducer, Parameters, Buckets, Rest..., bool>)
    return make(rest..., false);
  else if constexpr (std::is_constructible_v<c10d::Reducer, Parameters, Buckets, Rest..., bool, bool>)
    return make(rest..., false, false);
  else
    return make(rest..., false, false, Caps());
}

}  // namespace

struct GradientReducer::Impl {
  Group* group;
  std::vector<at::Tensor> parameters;
  std::unique_ptr<c10d::Reducer> reducer;
};

GradientReducer::GradientReducer(Group& group, std::vector<at::Tensor> parameters, int64_t bucket_mb)
    : impl_(std::make_unique<Impl>()) {
  impl_->group = &group;
  if (group.alone() || parameters.empty()) return;
  impl_->parameters = std::move(parameters);
  std::vector<bool> required;
  for (at::Tensor& parameter : impl_->parameters) {
    required.push_back(parameter.requires_grad());
    parameter.set_requires_grad(true);
  }
  const auto bytes = static_cast<size_t>(bucket_mb) << 20;
  auto [buckets, limits] = c10d::compute_bucket_assignment_by_size(
      impl_->parameters, {std::min<size_t>(bytes, c10d::kDefaultFirstBucketBytes), bytes},
      std::vector<bool>(impl_->parameters.size(), false));
  // Backward reaches the last layers first.
  std::reverse(buckets.begin(), buckets.end());
  std::reverse(limits.begin(), limits.end());
  impl_->reducer = make_reducer(
      impl_->parameters, buckets, limits, group.impl_->of(impl_->parameters.front()),
      std::vector<bool>(impl_->parameters.size(), false), static_cast<int64_t>(bytes),
      /*find_unused_parameters=*/true, /*gradient_as_bucket_view=*/false,
      std::unordered_map<size_t, std::string>(), static_cast<int64_t>(c10d::kDefaultFirstBucketBytes));
  for (size_t i = 0; i < required.size(); ++i) impl_->parameters[i].set_requires_grad(required[i]);
}

GradientReducer::~GradientReducer() = default;
GradientReducer::GradientReducer(GradientReducer&&) noexcept = default;

void GradientReducer::backward(const at::Tensor& total) {
  if (!impl_->reducer) {
    if (total.requires_grad()) total.backward();
    return;
  }
  // The first one always, so that the reducer is called even where nothing has a gradient.
  variable_list touched{impl_->parameters.front()};
  for (size_t i = 1; i < impl_->parameters.size(); ++i)
    if (impl_->parameters[i].grad().defined()) touched.push_back(impl_->parameters[i]);
  const at::Tensor root = Touch::apply(total, touched);
  impl_->group->guarded([&] {
    {
      SilentWarnings silent;
#if TORCH_VERSION_MAJOR >= 2
      const c10::WarningUtils::WarningHandlerGuard quiet(&silent);
#else
      const c10::Warning::WarningHandlerGuard quiet(&silent);
#endif
      impl_->reducer->prepare_for_backward({root});
    }
    try {
      root.backward();
    } catch (const c10::Error& error) {
      // An error of the model's own is not the other ranks' fault.
      const std::string line = first_line_of(error);
      for (const char* sign : {"gloo", "NCCL", "Socket", "socket"})
        if (line.find(sign) != std::string::npos) throw;
      fail("[backward] {}", line);
    }
  });
}

}  // namespace melete

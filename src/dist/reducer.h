// Gradients of several ranks become their mean while backward goes on: c10d's Reducer, which joins them into
// buckets and sends each as soon as it is full.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace melete {

class Group;

class GradientReducer {
 public:
  // Parameters that a backward pass may leave without gradient are fine; all ranks must list the same ones in
  // the same order.
  GradientReducer(Group& group, std::vector<at::Tensor> parameters, int64_t bucket_mb);
  ~GradientReducer();
  GradientReducer(GradientReducer&&) noexcept;

  // The last backward pass of an optimiser step, from `total` (a scalar). Afterwards every gradient, those of
  // earlier passes included, is the mean over all ranks; a parameter that no rank used has none, as before.
  void backward(const at::Tensor& total);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace melete

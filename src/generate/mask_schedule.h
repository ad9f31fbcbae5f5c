// Which share of a sequence is masked as time goes from 0 (all of it) to 1 (nothing), in training and in
// iterative decoding.
#pragma once

#include <ATen/ATen.h>

#include <string>
#include <vector>

namespace melete {

// "cosine", "linear", "square" (1 - t^2), "cubic", "root" (1 - sqrt(t)), "arccos"
const std::vector<std::string>& mask_schedule_names();
at::Tensor mask_share(const std::string& schedule, const at::Tensor& time);  // any shape, float32
// The time at which that share is masked.
double mask_time(const std::string& schedule, double share);

}  // namespace melete

// What every discriminator returns, and the distance between what two sounds look like to it.
#pragma once

#include <ATen/ATen.h>

#include <vector>

namespace melete {

struct Judgement {
  at::Tensor logits;
  std::vector<at::Tensor> features;  // activations on the way, for feature matching
  // Complex discriminators keep [real channels, imaginary channels] side by side in dimension 1.
  bool complex = false;
};

// Mean absolute difference of every pair of features (of complex ones, the mean magnitude of the difference).
std::vector<at::Tensor> feature_distances(const Judgement& real, const Judgement& fake);

}  // namespace melete

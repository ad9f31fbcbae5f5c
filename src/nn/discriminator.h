// What every discriminator returns, and the distance between what two sounds look like to it.
#pragma once

#include <ATen/ATen.h>

#include <vector>

#include "kernels/complex_pair.h"

namespace melete {

struct Judgement {
  at::Tensor logits;
  std::vector<at::Tensor> features;           // activations on the way, for feature matching
  std::vector<ComplexPair> complex_features;  // or these
};

// Mean absolute difference of every pair of features.
std::vector<at::Tensor> feature_distances(const Judgement& real, const Judgement& fake);

}  // namespace melete

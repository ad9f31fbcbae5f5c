#include "nn/discriminator.h"

#include "kernels/complex_elementwise.h"

namespace melete {

std::vector<at::Tensor> feature_distances(const Judgement& real, const Judgement& fake) {
  std::vector<at::Tensor> distances;
  for (size_t i = 0; i < real.features.size(); ++i)
    distances.push_back((real.features[i] - fake.features[i]).to(at::kFloat).abs().mean());
  for (size_t i = 0; i < real.complex_features.size(); ++i)
    distances.push_back(mean_distance(real.complex_features[i], fake.complex_features[i]));
  return distances;
}

}  // namespace melete

#include "models/discriminator.h"

namespace melete {

std::vector<at::Tensor> feature_distances(const Judgement& real, const Judgement& fake) {
  std::vector<at::Tensor> distances;
  for (size_t i = 0; i < real.features.size(); ++i) {
    const at::Tensor difference = (real.features[i] - fake.features[i]).to(at::kFloat);
    if (!fake.complex) {
      distances.push_back(difference.abs().mean());
      continue;
    }
    const auto parts = difference.chunk(2, 1);
    distances.push_back(at::sqrt(parts[0].square() + parts[1].square() + 1e-30).mean());
  }
  return distances;
}

}  // namespace melete

#include "systems/musiclm/search.h"

#include <algorithm>
#include <numeric>

#include "core/base/error.h"

namespace melete::musiclm {

std::vector<Match> nearest(const at::Tensor& vectors, const at::Tensor& query, int64_t top) {
  const at::NoGradGuard no_grad;
  require(vectors.dim() == 2 && query.dim() == 1 && vectors.size(1) == query.size(0),
          "[search] vectors of {} values cannot be held against a query of {}; were they made by another "
          "model?",
          vectors.size(-1), query.size(0));
  const at::Tensor scores = at::mv(vectors, query.to(vectors.scalar_type())).to(at::kCPU).contiguous();
  const float* score = scores.data_ptr<float>();
  std::vector<int64_t> order(static_cast<size_t>(scores.size(0)));
  std::iota(order.begin(), order.end(), 0);
  const auto count = std::min(order.size(), static_cast<size_t>(std::max<int64_t>(0, top)));
  std::partial_sort(
      order.begin(), order.begin() + static_cast<ptrdiff_t>(count), order.end(),
      [score](int64_t a, int64_t b) { return score[a] != score[b] ? score[a] > score[b] : a < b; });
  std::vector<Match> best;
  for (size_t i = 0; i < count; ++i) best.push_back({order[i], static_cast<double>(score[order[i]])});
  return best;
}

}  // namespace melete::musiclm

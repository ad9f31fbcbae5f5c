#include "systems/musiclm/retrieval.h"

#include <algorithm>

#include "core/base/error.h"

namespace melete::musiclm {

namespace {

constexpr int64_t kRowsAtOnce = 1024;  // so that a large set needs no matrix of all pairs

// Places of the best partner, from 1, ties counted half. [rows] double
at::Tensor ranks(const at::Tensor& scores, const at::Tensor& partner) {
  const at::Tensor own = scores.masked_fill(partner.logical_not(), -2).amax(1, true);
  const at::Tensor others = partner.logical_not();
  const at::Tensor better = scores.gt(own).logical_and(others).sum(1);
  const at::Tensor equal = scores.eq(own).logical_and(others).sum(1);
  return better.to(at::kDouble) + equal.to(at::kDouble) / 2 + 1;
}

}  // namespace

RetrievalFigures retrieval(const at::Tensor& queries, const at::Tensor& candidates,
                           const std::vector<int64_t>& ks, const at::Tensor& groups) {
  const at::NoGradGuard no_grad;
  const int64_t n = queries.size(0);
  require(n > 0 && candidates.sizes() == queries.sizes(),
          "[retrieval] expected as many candidates as queries, got {} and {}", candidates.size(0), n);
  const at::Tensor group = groups.defined() ? groups : at::arange(n, at::kLong);
  std::vector<at::Tensor> parts;
  for (int64_t begin = 0; begin < n; begin += kRowsAtOnce) {
    const int64_t end = std::min(begin + kRowsAtOnce, n);
    const at::Tensor partner = group.slice(0, begin, end).unsqueeze(1).eq(group.unsqueeze(0));
    parts.push_back(
        ranks(at::mm(queries.slice(0, begin, end), candidates.t()), partner.to(queries.device())));
  }
  const at::Tensor all = std::get<0>(at::cat(parts).sort());
  RetrievalFigures figures;
  for (const int64_t k : ks) figures.recall.push_back(all.le(k).to(at::kDouble).mean().item<double>());
  figures.median_rank = (all[(n - 1) / 2].item<double>() + all[n / 2].item<double>()) / 2;
  figures.mean_rank = all.mean().item<double>();
  return figures;
}

RetrievalFigures retrieval_by_chance(int64_t n, const std::vector<int64_t>& ks) {
  RetrievalFigures figures;
  const auto count = static_cast<double>(n);
  for (const int64_t k : ks) figures.recall.push_back(std::min(1.0, static_cast<double>(k) / count));
  figures.median_rank = figures.mean_rank = (count + 1) / 2;
  return figures;
}

double crowding(const at::Tensor& vectors) {
  const at::NoGradGuard no_grad;
  const auto n = static_cast<double>(vectors.size(0));
  if (n < 2) return 0;
  // |sum of all|^2 holds every product, those with themselves included.
  const at::Tensor wide = vectors.to(at::kDouble);
  const double all = wide.sum(0).square().sum().item<double>();
  const double own = wide.square().sum().item<double>();
  return (all - own) / (n * (n - 1));
}

}  // namespace melete::musiclm

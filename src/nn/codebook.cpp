#include "nn/codebook.h"

#include <torch/nn/functional.h>

#include <cmath>
#include <numeric>

#include "core/base/error.h"
#include "dist/group.h"

namespace melete {

namespace {

// Row of `centres` that each row of x is nearest to. [rows]
at::Tensor nearest_centre(const at::Tensor& x, const at::Tensor& centres, bool cosine) {
  if (cosine) return at::mm(x, centres.t()).argmax(1);
  // |x - c|^2 without |x|^2, which is the same for every centre
  return at::addmm(centres.square().sum(1), x, centres.t(), 1, -2).argmin(1);
}

}  // namespace

at::Tensor unit_vectors(const at::Tensor& x) {
  return torch::nn::functional::normalize(x, torch::nn::functional::NormalizeFuncOptions().dim(-1));
}

CodebookImpl::CodebookImpl(const CodebookConfig& config) : config_(config) {
  const double bound = std::sqrt(6.0 / static_cast<double>(config.size * config.dim));
  at::Tensor start = at::empty({config.size, config.dim}).uniform_(-bound, bound);
  if (config.cosine) start = unit_vectors(start);
  initialised = register_buffer("initialised", at::full({1}, config.kmeans_init ? 0.f : 1.f));
  counts = register_buffer("counts", at::zeros({config.size}));
  embedding_sum = register_buffer("embedding_sum", start.clone());
  embedding = register_buffer("embedding", start);
}

CodebookImpl::Choice CodebookImpl::forward(const at::Tensor& x, Draws* draws, bool update) {
  const at::NoGradGuard no_grad;
  const at::Tensor rows = x.detach();
  bool learning = is_training() && update;
  if (learning) require(draws != nullptr, "[codebook] training needs a source of random draws");
  if (learning || (config_.kmeans_in_eval && draws != nullptr)) {
    if (initialised.item<float>() == 0) {
      // A batch that is not finite leaves the codebook as it is; the trainer skips that step anyway.
      const bool broken = !at::isfinite(rows.sum()).item<bool>();
      const bool sound = group_ ? !group_->any(broken) : !broken;
      if (sound) initialise(rows, *draws);
      learning = learning && sound;
    }
  }
  const at::Tensor codes = nearest(rows, draws);
  Choice choice{embedding.index_select(0, codes), codes};
  if (learning) follow(rows, codes, *draws);
  return choice;
}

at::Tensor CodebookImpl::nearest(const at::Tensor& x, Draws* draws) {
  if (!(config_.stochastic && is_training() && config_.temperature > 0))
    return nearest_centre(x, embedding, config_.cosine);
  require(draws != nullptr, "[codebook] stochastic codes need a source of random draws");
  const at::Tensor scores =
      config_.cosine
          ? at::mm(x, embedding.t())
          : -at::sqrt(at::clamp_min(
                x.square().sum(1, true) + embedding.square().sum(1) - 2 * at::mm(x, embedding.t()), 0));
  const auto clamped_log = [](const at::Tensor& t) { return at::log(at::clamp_min(t, 1e-20)); };
  const at::Tensor noise = -clamped_log(-clamped_log(draws->uniform("gumbel", scores.sizes())));
  return (scores / config_.temperature + noise).argmax(1);
}

// What all ranks' vectors say together.
struct CodebookImpl::Gathered {
  at::Tensor counts;          // [size] how many chose each code
  at::Tensor sums;            // [size, dim] of their vectors
  std::vector<int64_t> rows;  // of every rank
};

CodebookImpl::Gathered CodebookImpl::gather_all(const at::Tensor& x, const at::Tensor& codes) const {
  const int64_t size = config_.size, dim = x.size(1), ranks = group_ ? group_->size() : 1;
  // Sums, counts and numbers of rows travel as one. [size * dim + size + ranks]
  at::Tensor all = at::zeros({size * dim + size + ranks}, x.options());
  const at::Tensor sums = all.narrow(0, 0, size * dim).view({size, dim});
  const at::Tensor chosen = all.narrow(0, size * dim, size);
  const at::Tensor rows = all.narrow(0, size * dim + size, ranks);
  sums.index_add_(0, codes, x);
  chosen.copy_(at::bincount(codes, {}, size));
  rows[group_ ? group_->rank() : 0].fill_(x.size(0));
  if (group_) group_->sum(all);
  Gathered gathered{chosen, sums, {}};
  const at::Tensor numbers = rows.to(at::kCPU).to(at::kLong);
  gathered.rows.assign(numbers.data_ptr<int64_t>(), numbers.data_ptr<int64_t>() + ranks);
  return gathered;
}

// The rows with these numbers, counted through the ranks in order. wanted [count] -> [count, dim]
at::Tensor CodebookImpl::rows_of_all(const at::Tensor& x, const std::vector<int64_t>& rows_of_ranks,
                                     const at::Tensor& wanted) const {
  if (!group_ || group_->alone()) return x.index_select(0, wanted.to(x.device()));
  const int64_t first =
      std::accumulate(rows_of_ranks.begin(), rows_of_ranks.begin() + group_->rank(), int64_t{0});
  const at::Tensor local = wanted - first;
  const at::Tensor mine = at::nonzero((local >= 0).logical_and(local < x.size(0))).squeeze(1);
  at::Tensor rows = at::zeros({wanted.size(0), x.size(1)}, x.options());
  rows.index_copy_(0, mine.to(x.device()), x.index_select(0, local.index_select(0, mine).to(x.device())));
  group_->sum(rows);
  return rows;
}

void CodebookImpl::initialise(const at::Tensor& x, Draws& draws) {
  std::vector<int64_t> counts_of_ranks{x.size(0)};
  if (group_) {
    const at::Tensor all = group_->gather(at::full({1}, x.size(0), at::kLong)).flatten();
    counts_of_ranks.assign(all.data_ptr<int64_t>(), all.data_ptr<int64_t>() + all.numel());
  }
  const int64_t population = std::accumulate(counts_of_ranks.begin(), counts_of_ranks.end(), int64_t{0});
  at::Tensor centres = rows_of_all(x, counts_of_ranks, draws.rows("kmeans", population, config_.size));
  at::Tensor sizes;
  for (int64_t i = 0; i < config_.kmeans_iterations; ++i) {
    const Gathered gathered = gather_all(x, nearest_centre(x, centres, config_.cosine));
    sizes = gathered.counts;
    at::Tensor means = gathered.sums / at::clamp_min(sizes, 1).unsqueeze(1);
    if (config_.cosine) means = unit_vectors(means);
    centres = at::where((sizes == 0).unsqueeze(1), centres, means);
  }
  embedding.copy_(centres);
  embedding_sum.copy_(centres * sizes.unsqueeze(1));
  counts.copy_(sizes);
  initialised.fill_(1);
}

void CodebookImpl::follow(const at::Tensor& x, const at::Tensor& codes, Draws& draws) {
  const Gathered gathered = gather_all(x, codes);
  // Vectors that are not finite, on whatever rank, leave every rank's codebook as it is.
  if (!at::isfinite(gathered.sums.sum()).item<bool>()) return;
  counts.lerp_(gathered.counts, 1 - config_.decay);
  embedding_sum.lerp_(gathered.sums, 1 - config_.decay);

  const at::Tensor total = counts.sum();
  const double size = static_cast<double>(config_.size);
  const at::Tensor smoothed = (counts + config_.epsilon) / (total + size * config_.epsilon) * total;
  at::Tensor means = embedding_sum / smoothed.unsqueeze(1);
  if (config_.cosine) means = unit_vectors(means);
  embedding.copy_(means);
  if (config_.dead_code_threshold > 0) revive_dead_codes(x, gathered.rows, draws);
}

void CodebookImpl::revive_dead_codes(const at::Tensor& x, const std::vector<int64_t>& rows, Draws& draws) {
  const at::Tensor dead = at::nonzero(counts < config_.dead_code_threshold).squeeze(1);
  if (dead.size(0) == 0) return;
  const int64_t population = std::accumulate(rows.begin(), rows.end(), int64_t{0});
  at::Tensor chosen = rows_of_all(x, rows, draws.rows("revive", population, dead.size(0)));
  if (config_.cosine) chosen = unit_vectors(chosen);
  embedding.index_copy_(0, dead, chosen);
  counts.index_fill_(0, dead, config_.dead_code_threshold);
  embedding_sum.index_copy_(0, dead, chosen * config_.dead_code_threshold);
}

}  // namespace melete

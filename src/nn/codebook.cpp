#include "nn/codebook.h"

#include <torch/nn/functional.h>

#include <cmath>
#include <tuple>

#include "core/base/error.h"

namespace melete {

namespace {

// Row of `centres` that each row of x is nearest to. [rows]
at::Tensor nearest_centre(const at::Tensor& x, const at::Tensor& centres, bool cosine) {
  if (cosine) return at::mm(x, centres.t()).argmax(1);
  // |x - c|^2 without |x|^2, which is the same for every centre
  return at::addmm(centres.square().sum(1), x, centres.t(), 1, -2).argmin(1);
}

// How many rows chose each code, and the sum of their vectors. [size], [size, dim]
std::tuple<at::Tensor, at::Tensor> gather(const at::Tensor& x, const at::Tensor& codes, int64_t size) {
  const at::Tensor counts = at::bincount(codes, {}, size).to(x.scalar_type());
  const at::Tensor sums = at::zeros({size, x.size(1)}, x.options()).index_add_(0, codes, x);
  return {counts, sums};
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
  if (learning) {
    require(draws != nullptr, "[codebook] training needs a source of random draws");
    // A batch that is not finite leaves the codebook as it is; the trainer skips that step anyway.
    learning = at::isfinite(rows.sum()).item<bool>();
    if (learning && initialised.item<float>() == 0) initialise(rows, *draws);
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

void CodebookImpl::initialise(const at::Tensor& x, Draws& draws) {
  at::Tensor centres = x.index_select(0, draws.rows("kmeans", x.size(0), config_.size));
  at::Tensor sizes;
  for (int64_t i = 0; i < config_.kmeans_iterations; ++i) {
    at::Tensor sums;
    std::tie(sizes, sums) = gather(x, nearest_centre(x, centres, config_.cosine), config_.size);
    at::Tensor means = sums / at::clamp_min(sizes, 1).unsqueeze(1);
    if (config_.cosine) means = unit_vectors(means);
    centres = at::where((sizes == 0).unsqueeze(1), centres, means);
  }
  embedding.copy_(centres);
  embedding_sum.copy_(centres * sizes.unsqueeze(1));
  counts.copy_(sizes);
  initialised.fill_(1);
}

void CodebookImpl::follow(const at::Tensor& x, const at::Tensor& codes, Draws& draws) {
  const auto [batch_counts, batch_sums] = gather(x, codes, config_.size);
  counts.lerp_(batch_counts, 1 - config_.decay);
  embedding_sum.lerp_(batch_sums, 1 - config_.decay);

  const at::Tensor total = counts.sum();
  const double size = static_cast<double>(config_.size);
  const at::Tensor smoothed = (counts + config_.epsilon) / (total + size * config_.epsilon) * total;
  at::Tensor means = embedding_sum / smoothed.unsqueeze(1);
  if (config_.cosine) means = unit_vectors(means);
  embedding.copy_(means);
  if (config_.dead_code_threshold > 0) revive_dead_codes(x, draws);
}

void CodebookImpl::revive_dead_codes(const at::Tensor& x, Draws& draws) {
  const at::Tensor dead = at::nonzero(counts < config_.dead_code_threshold).squeeze(1);
  if (dead.size(0) == 0) return;
  at::Tensor chosen = x.index_select(0, draws.rows("revive", x.size(0), dead.size(0)));
  if (config_.cosine) chosen = unit_vectors(chosen);
  embedding.index_copy_(0, dead, chosen);
  counts.index_fill_(0, dead, config_.dead_code_threshold);
  embedding_sum.index_copy_(0, dead, chosen * config_.dead_code_threshold);
}

}  // namespace melete

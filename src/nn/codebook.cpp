#include "nn/codebook.h"

#include <ATen/TensorIndexing.h>
#include <torch/nn/functional.h>

#include <cmath>
#include <numeric>

#include "core/base/error.h"
#include "core/device.h"
#include "dist/group.h"

namespace melete {

namespace {

// Row of `centres` that each row of x is nearest to. [rows]
at::Tensor nearest_centre(const at::Tensor& x, const at::Tensor& centres, bool cosine) {
  if (cosine) return at::mm(x, centres.t()).argmax(1);
  // |x - c|^2 without |x|^2, which is the same for every centre
  return at::addmm(centres.square().sum(1), x, centres.t(), 1, -2).argmin(1);
}

at::Tensor clamped_log(const at::Tensor& x) {
  return at::log(at::clamp_min(x, 1e-20));
}

// Products (cosine) or squared distances, [rows, size], of x [rows, dim] and centres [size, dim]
at::Tensor compared(const at::Tensor& x, const at::Tensor& centres, bool cosine) {
  if (cosine) return at::mm(x, centres.t());
  return x.square().sum(1, true) + centres.square().sum(1) - 2 * at::mm(x, centres.t());
}

at::Tensor nearness_of(const at::Tensor& compared, bool cosine) {
  return cosine ? compared : -at::sqrt(at::clamp_min(compared, 1e-20));  // at 0 the root has no gradient
}

at::Tensor spread(const at::Tensor& variance) {
  return at::sqrt(at::clamp_min(variance, 1e-5)).unsqueeze(1);
}

// Whether all is finite. The CPU looks and leaves; another device is not waited for, but keeps what it has.
class Soundness {
 public:
  explicit Soundness(const at::Tensor& sum)
      : on_cpu_(sum.device().is_cpu()), sound_(at::isfinite(sum)), broken_(on_cpu_ && !sound_.item<bool>()) {}

  bool known_broken() const { return broken_; }
  at::Tensor choose(const at::Tensor& now, const at::Tensor& before) const {
    return on_cpu_ ? now : at::where(sound_, now, before);
  }
  const at::Tensor& value() const { return sound_; }  // bool, on the device

 private:
  bool on_cpu_;
  at::Tensor sound_;
  bool broken_;
};

// begun: [1] 0 or 1
void move_average(at::Tensor& average, const at::Tensor& now, double decay, const at::Tensor& begun,
                  const Soundness& sound) {
  if (begun.device().is_cpu()) {
    if (begun.item<float>() != 0)
      average.mul_(decay).add_(now, 1 - decay);
    else
      average.copy_(now);
    return;
  }
  const at::Tensor moved = at::where(begun.ne(0), average * decay + now * (1 - decay), now);
  average.copy_(sound.choose(moved, average));
}

}  // namespace

bool HostFlag::read(const at::Tensor& flag) {
  const int64_t version = flag._version();
  if (flag.device().is_cpu() || version != version_) value_ = flag.item<float>() != 0;
  version_ = version;
  return value_;
}

at::Tensor unit_vectors(const at::Tensor& x) {
  return torch::nn::functional::normalize(x, torch::nn::functional::NormalizeFuncOptions().dim(-1));
}

CodebookImpl::CodebookImpl(const CodebookConfig& config) : config_(config) {
  const double bound = std::sqrt(6.0 / static_cast<double>(config.size * config.dim));
  at::Tensor start = at::empty({config.books * config.size, config.dim}).uniform_(-bound, bound);
  if (config.cosine) start = unit_vectors(start);
  initialised = register_buffer("initialised", at::full({1}, config.kmeans_init ? 0.f : 1.f));
  counts = register_buffer("counts", at::zeros({config.books * config.size}));
  embedding_sum = register_buffer("embedding_sum", start.clone());
  embedding = config.learnable ? register_parameter("embedding", start) : register_buffer("embedding", start);
  if (!config.affine) return;
  require(!config.cosine, "[codebook] an affine map of the codes is for distances, not for angles");
  for (const auto& [name, member] : {std::pair{"vectors_mean", &vectors_mean},
                                     {"vectors_variance", &vectors_variance},
                                     {"codes_mean", &codes_mean},
                                     {"codes_variance", &codes_variance}})
    *member = register_buffer(name, at::zeros({config.books, config.dim}));
  vectors_begun = register_buffer("vectors_begun", at::zeros({1}));
  codes_begun = register_buffer("codes_begun", at::zeros({1}));
}

at::Tensor CodebookImpl::book(const at::Tensor& all, int64_t index) const {
  return all.narrow(0, index * config_.size, config_.size);
}

CodebookImpl::Choice CodebookImpl::forward(const at::Tensor& x, Draws* draws, bool update,
                                           const at::Tensor& counted, const at::Tensor& chosen) {
  const at::Tensor rows = x.detach();
  using at::indexing::Slice;
  const at::Tensor counting = counted.defined() ? rows.index({Slice(), counted}) : rows;
  bool learning = is_training() && update;
  Choice choice;
  {
    const at::NoGradGuard no_grad;
    if (learning) require(draws != nullptr, "[codebook] training needs a source of random draws");
    if (learning || (config_.kmeans_in_eval && draws != nullptr)) {
      if (!known_initialised_.read(initialised)) {
        // A batch that is not finite leaves the codebook as it is; the trainer skips that step anyway.
        const bool broken = !at::isfinite(rows.sum()).item<bool>();
        const bool sound = group_ ? !group_->any(broken) : !broken;
        if (sound) initialise(counting, *draws);
        learning = learning && sound;
      }
    }
    if (config_.affine && (learning || config_.kmeans_in_eval)) follow_moments(counting, learning);
  }
  choice.seen = codes_seen();
  {
    const at::NoGradGuard no_grad;
    choice.codes = chosen.defined() ? chosen : choose(rows, choice.seen.detach(), draws);
  }
  choice.vectors = look_up(x, choice.seen, choice.codes);
  if (learning && config_.moving_average) {
    const at::NoGradGuard no_grad;
    follow(rows, choice.codes, counted, *draws);
  }
  return choice;
}

at::Tensor CodebookImpl::codes_seen() const {
  at::Tensor codes = embedding.view({config_.books, config_.size, config_.dim});
  if (!config_.learnable) codes = codes.detach();
  // What averages will move in place must not be what a gradient or a loss is still to be taken through.
  if (config_.moving_average && (config_.learnable || config_.seen_is_kept)) codes = codes.clone();
  if (!config_.affine) return codes;
  const bool on_cpu = codes.device().is_cpu();
  if (on_cpu && (vectors_begun.item<float>() == 0 || codes_begun.item<float>() == 0)) return codes;
  const at::Tensor mapped =
      (codes - codes_mean.unsqueeze(1)) * (spread(vectors_variance) / spread(codes_variance)) +
      vectors_mean.unsqueeze(1);
  return on_cpu ? mapped : at::where(vectors_begun.ne(0).logical_and(codes_begun.ne(0)), mapped, codes);
}

at::Tensor CodebookImpl::nearness(const at::Tensor& x, const at::Tensor& seen) const {
  std::vector<at::Tensor> scores;
  for (int64_t i = 0; i < config_.books; ++i)
    scores.push_back(nearness_of(compared(x[i], seen[i], config_.cosine), config_.cosine));
  return scores.size() == 1 ? scores.front().unsqueeze(0) : at::stack(scores);
}

at::Tensor CodebookImpl::nearness(const at::Tensor& x, const at::Tensor& seen,
                                  const at::Tensor& passing) const {
  std::vector<at::Tensor> scores;
  for (int64_t i = 0; i < config_.books; ++i) {
    const at::Tensor passed = compared(x[i], passing[i], config_.cosine);
    const at::Tensor value = compared(x[i], seen[i], config_.cosine);
    scores.push_back(nearness_of(passed + (value - passed).detach(), config_.cosine));
  }
  return at::stack(scores);
}

at::Tensor CodebookImpl::choose(const at::Tensor& x, const at::Tensor& seen, Draws* draws) const {
  if (config_.stochastic && is_training() && config_.temperature > 0) {
    require(draws != nullptr, "[codebook] stochastic codes need a source of random draws");
    const at::Tensor scores = nearness(x, seen);
    const at::Tensor noise = -clamped_log(-clamped_log(draws->uniform("gumbel", scores.sizes())));
    return (scores / config_.temperature + sent_to(scores.device(), noise)).argmax(-1);
  }
  std::vector<at::Tensor> codes;
  for (int64_t i = 0; i < config_.books; ++i) codes.push_back(nearest_centre(x[i], seen[i], config_.cosine));
  return codes.size() == 1 ? codes.front().unsqueeze(0) : at::stack(codes);
}

at::Tensor CodebookImpl::look_up(const at::Tensor& x, const at::Tensor& seen, const at::Tensor& codes) const {
  const bool soft = config_.differentiable_choice && is_training() && config_.temperature > 0;
  if (!soft) {
    std::vector<at::Tensor> chosen;
    for (int64_t i = 0; i < config_.books; ++i) chosen.push_back(seen[i].index_select(0, codes[i]));
    return chosen.size() == 1 ? chosen.front().unsqueeze(0) : at::stack(chosen);
  }
  const at::Tensor scores = nearness(x, seen);
  at::Tensor choice = at::one_hot(codes, config_.size).to(scores.scalar_type());
  if (config_.reinmax) {
    const at::Tensor plain = at::softmax(scores, -1);
    const at::Tensor middle = (choice + at::softmax(scores / config_.temperature, -1)) / 2;
    const at::Tensor corrected = at::softmax((clamped_log(middle) - scores).detach() + scores, -1);
    const at::Tensor slope = 2 * corrected - 0.5 * plain;
    choice = slope - slope.detach() + choice;
  } else {
    const at::Tensor slope = at::softmax(scores / config_.temperature, -1);
    choice = choice + slope - slope.detach();
  }
  return at::bmm(choice, seen);
}

at::Tensor CodebookImpl::vectors(const at::Tensor& codes) const {
  const at::Tensor seen = codes_seen().flatten(0, 1);
  if (config_.books == 1) return torch::nn::functional::embedding(codes, seen).flatten(-2);
  const at::Tensor first = at::arange(config_.books, codes.options()) * config_.size;
  return torch::nn::functional::embedding(codes + first, seen).flatten(-2);
}

// What all ranks' vectors say together.
struct CodebookImpl::Gathered {
  at::Tensor counts;          // [books * size] how many chose each code
  at::Tensor sums;            // [books * size, dim] of their vectors
  std::vector<int64_t> rows;  // of every rank and book
};

CodebookImpl::Gathered CodebookImpl::gather_all(const at::Tensor& x, const at::Tensor& codes,
                                                int64_t rows_here) const {
  const int64_t size = config_.books * config_.size, dim = x.size(2), ranks = group_ ? group_->size() : 1;
  // Sums, counts and numbers of rows travel as one. [size * dim + size + ranks]
  at::Tensor all = at::zeros({size * dim + size + ranks}, x.options());
  const at::Tensor sums = all.narrow(0, 0, size * dim).view({size, dim});
  const at::Tensor chosen = all.narrow(0, size * dim, size);
  const at::Tensor rows = all.narrow(0, size * dim + size, ranks);
  const at::Tensor first = at::arange(config_.books, codes.options()).unsqueeze(1) * config_.size;
  const at::Tensor places = (codes + first).flatten();
  sums.index_add_(0, places, x.flatten(0, 1));
  const bool on_cpu = all.device().is_cpu();
  if (on_cpu)
    chosen.copy_(at::bincount(places, {}, size));
  else  // which would ask the device how large the largest is
    chosen.index_add_(0, places, at::ones({1}, x.options()).expand({places.size(0)}));
  rows[group_ ? group_->rank() : 0].fill_(rows_here);
  if (group_) group_->sum(all);
  Gathered gathered{chosen, sums, {rows_here}};
  if (!group_) return gathered;
  // Hosts tell each other, so that none waits for its device.
  const at::Tensor numbers =
      on_cpu ? rows.to(at::kLong) : group_->gather(at::full({1}, rows_here, at::kLong)).flatten();
  gathered.rows.assign(numbers.data_ptr<int64_t>(), numbers.data_ptr<int64_t>() + ranks);
  return gathered;
}

// The rows with these numbers, counted through the ranks in order. x [rows, dim], wanted [count] -> [count,
// dim]
at::Tensor CodebookImpl::rows_of_all(const at::Tensor& x, const std::vector<int64_t>& rows_of_ranks,
                                     const at::Tensor& wanted) const {
  if (!group_ || group_->alone()) return x.index_select(0, sent_to(x.device(), wanted));
  const int64_t first =
      std::accumulate(rows_of_ranks.begin(), rows_of_ranks.begin() + group_->rank(), int64_t{0});
  const at::Tensor local = wanted - first;
  if (!wanted.device().is_cpu()) {
    const at::Tensor here = (local >= 0).logical_and(local < x.size(0)).unsqueeze(1);
    at::Tensor rows = x.index_select(0, local.clamp(0, x.size(0) - 1)).masked_fill(here.logical_not(), 0);
    group_->sum(rows);
    return rows;
  }
  const at::Tensor mine = at::nonzero((local >= 0).logical_and(local < x.size(0))).squeeze(1);
  at::Tensor rows = at::zeros({wanted.size(0), x.size(1)}, x.options());
  rows.index_copy_(0, mine.to(x.device()), x.index_select(0, local.index_select(0, mine).to(x.device())));
  group_->sum(rows);
  return rows;
}

void CodebookImpl::initialise(const at::Tensor& x, Draws& draws) {
  std::vector<int64_t> counts_of_ranks{x.size(1)};
  if (group_) {
    const at::Tensor all = group_->gather(at::full({1}, x.size(1), at::kLong)).flatten();
    counts_of_ranks.assign(all.data_ptr<int64_t>(), all.data_ptr<int64_t>() + all.numel());
  }
  const int64_t population = std::accumulate(counts_of_ranks.begin(), counts_of_ranks.end(), int64_t{0});
  std::vector<at::Tensor> starts;
  for (int64_t i = 0; i < config_.books; ++i)
    starts.push_back(rows_of_all(x[i], counts_of_ranks, draws.rows("kmeans", population, config_.size)));
  at::Tensor centres = at::cat(starts);
  at::Tensor sizes;
  for (int64_t i = 0; i < config_.kmeans_iterations; ++i) {
    std::vector<at::Tensor> codes;
    for (int64_t b = 0; b < config_.books; ++b)
      codes.push_back(nearest_centre(x[b], book(centres, b), config_.cosine));
    const Gathered gathered = gather_all(x, at::stack(codes), x.size(1));
    sizes = gathered.counts;
    at::Tensor means = gathered.sums / at::clamp_min(sizes, 1).unsqueeze(1);
    if (config_.cosine) means = unit_vectors(means);
    centres = at::where((sizes == 0).unsqueeze(1), centres, means);
  }
  embedding.copy_(centres);
  embedding_sum.copy_(centres * sizes.unsqueeze(1));
  counts.copy_(sizes);
  initialised.fill_(1);
  known_initialised_.read(initialised);  // now, so that no later step has to wait for it
}

// The affine map's mean and variance of the vectors, of all ranks, and of the codes.
void CodebookImpl::follow_moments(const at::Tensor& x, bool of_codes) {
  at::Tensor sums = at::cat({x.sum(1).flatten(), x.square().sum(1).flatten(),
                             at::full({1}, static_cast<double>(x.size(1)), x.options())});
  if (group_) group_->sum(sums);
  // Vectors that are not finite, on whatever rank, leave every rank's moments as they are.
  const Soundness sound(sums.sum());
  if (sound.known_broken()) return;
  const int64_t values = config_.books * config_.dim;
  const at::Tensor rows = sums[2 * values];
  const at::Tensor mean = (sums.narrow(0, 0, values) / rows).view_as(vectors_mean);
  at::Tensor variance = (sums.narrow(0, values, values) / rows).view_as(vectors_mean) - mean.square();
  if (!group_ || group_->alone()) variance = x.var(1, /*unbiased=*/false);
  move_average(vectors_mean, mean, config_.affine_vectors_decay, vectors_begun, sound);
  move_average(vectors_variance, variance, config_.affine_vectors_decay, vectors_begun, sound);
  vectors_begun.copy_(sound.choose(at::ones_like(vectors_begun), vectors_begun));
  if (!of_codes) return;
  const at::Tensor codes = embedding.detach().view({config_.books, config_.size, config_.dim});
  move_average(codes_mean, codes.mean(1), config_.affine_codes_decay, codes_begun, sound);
  move_average(codes_variance, codes.var(1, /*unbiased=*/false), config_.affine_codes_decay, codes_begun,
               sound);
  codes_begun.copy_(sound.choose(at::ones_like(codes_begun), codes_begun));
}

void CodebookImpl::follow(const at::Tensor& x, const at::Tensor& codes, const at::Tensor& counted,
                          Draws& draws) {
  at::Tensor vectors = x;
  if (config_.affine)  // back to where the codes are
    vectors = (x - vectors_mean.unsqueeze(1)) * (spread(codes_variance) / spread(vectors_variance)) +
              codes_mean.unsqueeze(1);
  using at::indexing::Slice;
  const Gathered gathered = counted.defined() ? gather_all(vectors.index({Slice(), counted}),
                                                           codes.index({Slice(), counted}), x.size(1))
                                              : gather_all(vectors, codes, x.size(1));
  // Vectors that are not finite, on whatever rank, leave every rank's codebook as it is.
  const Soundness sound(gathered.sums.sum());
  if (sound.known_broken()) return;
  counts.lerp_(sound.choose(gathered.counts, counts), 1 - config_.decay);
  embedding_sum.lerp_(sound.choose(gathered.sums, embedding_sum), 1 - config_.decay);

  const double size = static_cast<double>(config_.size);
  for (int64_t i = 0; i < config_.books; ++i) {
    const at::Tensor chosen = book(counts, i), total = chosen.sum();
    const at::Tensor smoothed = (chosen + config_.epsilon) / (total + size * config_.epsilon) * total;
    at::Tensor means = book(embedding_sum, i) / smoothed.unsqueeze(1);
    if (config_.cosine) means = unit_vectors(means);
    const at::Tensor own = book(embedding.detach(), i);
    own.copy_(sound.choose(means, own));
  }
  if (config_.dead_code_threshold <= 0) return;
  if (x.device().is_cpu())
    revive_dead_codes(x, gathered.rows, draws);
  else
    revive_without_waiting(x, gathered.rows, sound.value(), draws);
}

void CodebookImpl::revive_dead_codes(const at::Tensor& x, const std::vector<int64_t>& rows, Draws& draws) {
  const int64_t population = std::accumulate(rows.begin(), rows.end(), int64_t{0});
  for (int64_t i = 0; i < config_.books; ++i) {
    const at::Tensor dead = at::nonzero(book(counts, i) < config_.dead_code_threshold).squeeze(1);
    if (dead.size(0) == 0) continue;
    at::Tensor chosen = rows_of_all(x[i], rows, draws.rows("revive", population, dead.size(0)));
    if (config_.cosine) chosen = unit_vectors(chosen);
    const at::Tensor places = dead + i * config_.size;
    embedding.detach().index_copy_(0, places, chosen);
    counts.index_fill_(0, places, config_.dead_code_threshold);
    embedding_sum.index_copy_(0, places, chosen * config_.dead_code_threshold);
  }
}

// The same where only the device knows which codes are dead: rows for all of them, of which each dead code
// takes the next. A book without dead codes uses up draws here and none on the CPU.
void CodebookImpl::revive_without_waiting(const at::Tensor& x, const std::vector<int64_t>& rows,
                                          const at::Tensor& sound, Draws& draws) {
  const int64_t population = std::accumulate(rows.begin(), rows.end(), int64_t{0});
  const int64_t drawn = std::min(population, config_.size);
  for (int64_t i = 0; i < config_.books; ++i) {
    const at::Tensor own_counts = book(counts, i), sums = book(embedding_sum, i),
                     codes = book(embedding.detach(), i);
    const at::Tensor dead = (own_counts < config_.dead_code_threshold).logical_and(sound);
    const at::Tensor order = sent_to(x.device(), draws.rows("revive", population, drawn));
    const at::Tensor turn = (dead.to(at::kLong).cumsum(0) - 1).clamp_min(0);
    at::Tensor wanted = order.index_select(0, turn.remainder(drawn));
    if (population <
        config_.size) {  // there may be more dead codes than rows: then rows come again at random
      const at::Tensor repeated = sent_to(x.device(), draws.rows("revive", population, config_.size));
      wanted = at::where(dead.sum() > population, repeated.index_select(0, turn), wanted);
    }
    at::Tensor chosen = rows_of_all(x[i], rows, wanted);
    if (config_.cosine) chosen = unit_vectors(chosen);
    const at::Tensor which = dead.unsqueeze(1);
    codes.copy_(at::where(which, chosen, codes));
    own_counts.masked_fill_(dead, config_.dead_code_threshold);
    sums.copy_(at::where(which, chosen * config_.dead_code_threshold, sums));
  }
}

}  // namespace melete

#include "pretrained/kmeans_fit.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "core/base/error.h"
#include "core/base/random.h"

namespace melete {

namespace {

struct Assignment {
  at::Tensor cluster;   // [rows] int64
  at::Tensor distance;  // [rows] squared
};

Assignment assign(const at::Tensor& rows, const at::Tensor& centroids) {
  const at::Tensor partial = centroids.square().sum(1) - 2 * at::matmul(rows, centroids.t());
  const auto [least, cluster] = partial.min(1);
  return {cluster, (least + rows.square().sum(1)).clamp_min(0)};
}

// An index drawn with the given weights. Where all are zero, any.
int64_t draw(const at::Tensor& weights, Rng& rng) {
  const at::Tensor sums = weights.to(at::kDouble).cumsum(0).to(at::kCPU).contiguous();
  const int64_t count = sums.size(0);
  const double* begin = sums.data_ptr<double>();
  const double total = begin[count - 1];
  if (!(total > 0)) return rng.integer(0, count);
  const double* found = std::upper_bound(begin, begin + count, rng.uniform() * total);
  return std::min<int64_t>(found - begin, count - 1);
}

// k-means++: each next centroid is a row, drawn by its squared distance to those that are there.
at::Tensor plus_plus(const at::Tensor& rows, int64_t clusters, Rng& rng) {
  const at::Tensor centroids = at::empty({clusters, rows.size(1)}, rows.options());
  const at::Tensor squares = rows.square().sum(1);
  at::Tensor nearest;
  for (int64_t i = 0; i < clusters; ++i) {
    const int64_t row = i == 0 ? rng.integer(0, rows.size(0)) : draw(nearest, rng);
    centroids[i].copy_(rows[row]);
    const at::Tensor distance =
        (squares - 2 * at::mv(rows, centroids[i]) + centroids[i].square().sum()).clamp_min(0);
    nearest = i == 0 ? distance : at::minimum(nearest, distance);
    nearest[row] = 0;
  }
  return centroids;
}

struct Sums {
  at::Tensor sum;    // [clusters, dim]
  at::Tensor count;  // [clusters]
};

Sums sums_of(const at::Tensor& rows, const at::Tensor& cluster, int64_t clusters) {
  Sums result{at::zeros({clusters, rows.size(1)}, rows.options()), at::zeros({clusters}, rows.options())};
  result.sum.index_add_(0, cluster, rows);
  result.count.index_add_(0, cluster, at::ones({rows.size(0)}, rows.options()));
  return result;
}

// Moves each of the listed clusters to a row that is badly served now.
void reseed(const at::Tensor& centroids, const std::vector<int64_t>& which, const at::Tensor& rows,
            at::Tensor distance, Rng& rng) {
  distance = distance.clone();
  for (const int64_t cluster : which) {
    const int64_t row = draw(distance, rng);
    centroids[cluster].copy_(rows[row]);
    distance = at::minimum(distance, (rows - rows[row]).square().sum(1));
  }
}

std::vector<int64_t> below(const at::Tensor& values, double limit) {
  const at::Tensor found = (values < limit).nonzero().flatten().to(at::kCPU).contiguous();
  return {found.data_ptr<int64_t>(), found.data_ptr<int64_t>() + found.numel()};
}

void check_rows(const at::Tensor& rows, int64_t number) {
  require(rows.dim() == 2 && rows.size(0) > 0, "[kmeans] batch {} has no frames", number);
  require(at::isfinite(rows).all().item<bool>(), "[kmeans] batch {} has features that are not finite",
          number);
}

class Fit {
 public:
  Fit(const FrameBatches& batches, const KmeansConfig& config,
      const std::function<void(const KmeansProgress&)>& progress, at::Device device)
      : batches_(batches), config_(config), progress_(progress), device_(device) {}

  KmeansFit run() {
    take_sample();
    start();
    stream();
    const Assignment last = assign(sample_, centroids_);
    result_.inertia = last.distance.mean().item<double>();
    const at::Tensor used = sums_of(sample_, last.cluster, config_.clusters).count;
    result_.unused = static_cast<int64_t>(below(used, 0.5).size());
    result_.centroids.vectors = centroids_;
    for (at::Tensor* tensor : {&result_.centroids.vectors, &result_.centroids.mean, &result_.centroids.scale})
      if (tensor->defined()) *tensor = tensor->to(at::kCPU);
    return result_;
  }

 private:
  at::Tensor prepared(const at::Tensor& rows) const {
    return result_.centroids.mean.defined() ? (rows - result_.centroids.mean) * result_.centroids.scale
                                            : rows;
  }

  Rng rng(const char* purpose, int64_t number) const {
    return Rng(random_key(static_cast<uint64_t>(config_.seed), purpose, {static_cast<uint64_t>(number)}));
  }

  void tell(KmeansProgress::Stage stage, int64_t number, double inertia, double average) const {
    if (progress_) progress_({stage, number, inertia, average, result_.reseeded});
  }

  void take_sample() {
    const int64_t wanted = std::max(config_.start_frames, 4 * config_.clusters);
    std::vector<at::Tensor> parts;
    int64_t frames = 0;
    for (; frames < wanted && next_ < config_.max_batches; ++next_) {
      parts.push_back(batches_(next_).to(device_, at::kFloat));
      check_rows(parts.back(), next_);
      frames += parts.back().size(0);
    }
    sample_ = at::cat(parts, 0);
    require(
        sample_.size(0) >= config_.clusters,
        "[kmeans] {} clusters need at least as many frames, got {}; give more recordings or fewer clusters",
        config_.clusters, sample_.size(0));
    result_.frames = sample_.size(0);
    if (config_.standardise) {
      result_.centroids.mean = sample_.mean(0);
      result_.centroids.scale =
          1 / (sample_ - result_.centroids.mean).square().mean(0).sqrt().clamp_min(1e-5);
    }
    sample_ = prepared(sample_);
    result_.total_spread = (sample_ - sample_.mean(0)).square().sum(1).mean().item<double>();
  }

  void start() {
    double best = std::numeric_limits<double>::infinity();
    for (int64_t restart = 0; restart < config_.restarts; ++restart) {
      Rng random = rng("kmeans start", restart);
      const at::Tensor centroids = plus_plus(sample_, config_.clusters, random);
      for (int64_t i = 0; i < config_.start_iterations; ++i) {
        const Assignment now = assign(sample_, centroids);
        const Sums sums = sums_of(sample_, now.cluster, config_.clusters);
        centroids.copy_(at::where((sums.count > 0).unsqueeze(1),
                                  sums.sum / sums.count.clamp_min(1).unsqueeze(1), centroids));
        reseed(centroids, below(sums.count, 0.5), sample_, now.distance, random);
      }
      const double inertia = assign(sample_, centroids).distance.mean().item<double>();
      tell(KmeansProgress::Stage::start, restart + 1, inertia, inertia);
      if (inertia < best) {
        best = inertia;
        centroids_ = centroids;
      }
    }
    // The sample counts as what the centroids have seen.
    counts_ = sums_of(sample_, assign(sample_, centroids_).cluster, config_.clusters).count;
  }

  void stream() {
    double average = 0, best = std::numeric_limits<double>::infinity();
    int64_t since_best = 0, number = 0;
    at::Tensor recent = counts_.clone();  // fades, so that a cluster is judged by many batches
    for (; next_ < config_.max_batches && since_best < config_.patience; ++next_, ++number) {
      const at::Tensor rows = prepared(batches_(next_).to(device_, at::kFloat));
      check_rows(rows, next_);
      const Assignment now = assign(rows, centroids_);
      const Sums sums = sums_of(rows, now.cluster, config_.clusters);
      // Every centroid is the mean of all frames that chose it so far.
      counts_ += sums.count;
      const at::Tensor touched = (sums.count > 0).unsqueeze(1);
      const at::Tensor step =
          (sums.sum - sums.count.unsqueeze(1) * centroids_) / counts_.clamp_min(1).unsqueeze(1);
      centroids_.add_(at::where(touched, step, at::zeros_like(step)));
      result_.frames += rows.size(0);

      const double inertia = now.distance.mean().item<double>();
      average = number == 0 ? inertia : average + 0.2 * (inertia - average);
      since_best = average < best * (1 - 1e-4) ? 0 : since_best + 1;
      best = std::min(best, average);

      recent = 0.9 * recent + sums.count;
      const double fair = recent.sum().item<double>() / static_cast<double>(config_.clusters);
      const auto dead =
          fair >= kFramesToJudge ? below(recent, config_.dead_share * fair) : std::vector<int64_t>();
      // Not with the last batch: a moved centroid has yet to settle.
      if (!dead.empty() && next_ + 1 < config_.max_batches) {
        Rng random = rng("kmeans dead", next_);
        reseed(centroids_, dead, rows, now.distance, random);
        for (const int64_t cluster : dead) {
          counts_[cluster] = 1;
          recent[cluster] = fair;
        }
        result_.reseeded += static_cast<int64_t>(dead.size());
      }
      tell(KmeansProgress::Stage::batch, number + 1, inertia, average);
    }
    result_.batches = next_;
  }

  static constexpr double kFramesToJudge = 5;  // that a cluster should have had before it is called dead

  const FrameBatches& batches_;
  const KmeansConfig& config_;
  const std::function<void(const KmeansProgress&)>& progress_;
  at::Device device_;
  KmeansFit result_;
  at::Tensor sample_, centroids_, counts_;
  int64_t next_ = 0;
};

}  // namespace

void describe(Schema& schema, KmeansConfig& config) {
  schema.option("clusters", config.clusters, "tokens there will be").at_least(2);
  schema.option("batch_frames", config.batch_frames, "of a batch").at_least(1).unit("frames");
  schema.option("start_frames", config.start_frames, "that starts are made on").at_least(1).unit("frames");
  schema.option("restarts", config.restarts, "starts to choose from").at_least(1);
  schema.option("start_iterations", config.start_iterations, "of plain k-means for each start").at_least(0);
  schema.option("max_batches", config.max_batches, "at most, those of the start included").at_least(1);
  schema.option("patience", config.patience, "batches without progress before it stops").at_least(1);
  schema.option("dead_share", config.dead_share, "of its fair share: a cluster below it is put elsewhere")
      .at_least(0)
      .at_most(0.5);
  schema.option("standardise", config.standardise, "give every feature the same spread first");
  schema.option("seed", config.seed, "of all draws").at_least(0);
}

KmeansFit fit_kmeans(const FrameBatches& batches, const KmeansConfig& config,
                     const std::function<void(const KmeansProgress&)>& progress, at::Device device) {
  const at::NoGradGuard no_grad;
  return Fit(batches, config, progress, device).run();
}

}  // namespace melete

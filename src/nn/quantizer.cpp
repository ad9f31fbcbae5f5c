#include "nn/quantizer.h"

#include <fmt/ranges.h>
#include <torch/nn/functional.h>

#include <bit>
#include <cmath>
#include <numeric>

#include "core/autocast.h"
#include "core/base/error.h"

namespace melete {

namespace {

// Value of `to`, gradient of `from`.
at::Tensor straight_through(const at::Tensor& from, const at::Tensor& to) {
  return from + (to - from).detach();
}

struct VectorStage : QuantizerStage {
  VectorStage(const QuantizerConfig& config, int64_t dim)
      : cosine_(config.cosine), commitment_weight_(config.commitment_weight) {
    CodebookConfig book;
    book.size = config.codebook_size;
    book.dim = dim;
    book.decay = config.decay;
    book.kmeans_init = config.kmeans_init;
    book.kmeans_in_eval = config.kmeans_in_eval;
    book.kmeans_iterations = config.kmeans_iterations;
    book.dead_code_threshold = config.dead_code_threshold;
    book.cosine = config.cosine;
    book.stochastic = config.stochastic;
    book.temperature = config.temperature;
    codebook_ = register_module("codebook", Codebook(book));
  }

  Result quantize(const at::Tensor& given, Draws* draws, bool update) override {
    const at::Tensor x = cosine_ ? unit_vectors(given) : given;
    const auto choice = codebook_->forward(x.reshape({-1, x.size(-1)}), draws, update);
    const at::Tensor chosen = choice.vectors.view_as(x), codes = choice.codes.view({x.size(0), x.size(1)});
    if (!is_training()) return {chosen, codes, {}};
    return {straight_through(x, chosen), codes, commitment_weight_ * at::mse_loss(x, chosen)};
  }

  at::Tensor vectors(const at::Tensor& codes) override {
    return torch::nn::functional::embedding(codes, codebook_->embedding);
  }

 private:
  bool cosine_;
  double commitment_weight_;
  Codebook codebook_{nullptr};
};

at::Tensor entropy(const at::Tensor& probability) {
  return -(probability * at::log(at::clamp_min(probability, 1e-5))).sum(-1);
}

struct BitStage : QuantizerStage {
  BitStage(const QuantizerConfig& config, int64_t bits, int64_t index)
      : config_(config), scale_(std::exp2(-static_cast<double>(index))) {
    // The first channel is the most significant bit.
    place_value_ = at::pow(2, at::arange(bits - 1, -1, -1, at::kLong));
    const at::Tensor codes = at::arange(config.codebook_size, at::kLong);
    codebook_ = vectors(codes);
  }

  Result quantize(const at::Tensor& x, Draws* draws, bool) override {
    const at::Tensor positive = x > 0;
    const at::Tensor signs =
        at::where(positive, at::full({}, scale_, x.options()), at::full({}, -scale_, x.options()));
    const at::Tensor codes = (positive.to(at::kLong) * place_value_).sum(-1);
    if (!is_training()) return {signs, codes, {}};
    return {straight_through(x, signs), codes,
            config_.entropy_weight * entropy_loss(x, draws) +
                config_.lfq_commitment_weight * at::mse_loss(x, signs)};
  }

  at::Tensor vectors(const at::Tensor& codes) override {
    const at::Tensor bits = codes.unsqueeze(-1).bitwise_and(place_value_).ne(0).to(at::kFloat);
    return bits * (2 * scale_) - scale_;
  }

 private:
  // Low for confident frames, low for evenly used codes.
  at::Tensor entropy_loss(const at::Tensor& x, Draws* draws) const {
    const at::Tensor rows = x.reshape({-1, x.size(-1)});
    at::Tensor probability = at::softmax(2 * config_.entropy_sharpness * at::mm(rows, codebook_.t()), -1);
    if (config_.entropy_fraction < 1) {
      const int64_t all = rows.size(0);
      const auto kept = static_cast<int64_t>(static_cast<double>(all) * config_.entropy_fraction);
      require(draws != nullptr, "[quantizer] entropy_fraction needs a source of random draws");
      probability = probability.index({draws->normal("entropy", {all}).argsort() < kept});
    }
    return entropy(probability).mean() - config_.diversity * entropy(probability.mean(0));
  }

  QuantizerConfig config_;
  double scale_;
  at::Tensor place_value_, codebook_;
};

struct ScalarStage : QuantizerStage {
  ScalarStage(const QuantizerConfig& config, int64_t index) {
    levels_ = at::tensor(config.levels, at::kFloat);
    half_width_ = at::floor(levels_ / 2);
    scale_ = at::pow(levels_ - 1, -static_cast<double>(index));
    std::vector<int64_t> basis{1};
    for (size_t i = 0; i + 1 < config.levels.size(); ++i) basis.push_back(basis.back() * config.levels[i]);
    basis_ = at::tensor(basis, at::kLong);
    integer_levels_ = at::tensor(config.levels, at::kLong);
  }

  at::Tensor prepare(const at::Tensor& x) override { return bound(x); }

  Result quantize(const at::Tensor& x, Draws*, bool) override {
    const at::Tensor bounded = bound(x / scale_);
    const at::Tensor rounded = at::round(bounded.detach());
    const at::Tensor codes = ((rounded + half_width_).to(at::kLong) * basis_).sum(-1);
    return {straight_through(bounded, rounded) / half_width_ * scale_, codes, {}};
  }

  at::Tensor vectors(const at::Tensor& codes) override {
    const at::Tensor digits =
        at::remainder(at::div(codes.unsqueeze(-1), basis_, "floor"), integer_levels_).to(at::kFloat);
    return (digits - half_width_) / half_width_ * scale_;
  }

 private:
  // Squashes every channel into its range of levels; even counts of levels sit half a step off zero.
  at::Tensor bound(const at::Tensor& x) const {
    const at::Tensor half = (levels_ - 1) * 1.001 / 2;
    const at::Tensor offset = at::where(at::remainder(levels_, 2) == 0, at::full({}, 0.5f), at::zeros({}));
    return at::tanh(x + at::atanh(offset / half)) * half - offset;
  }

  at::Tensor levels_, half_width_, scale_, basis_, integer_levels_;
};

int64_t stage_dim(const QuantizerConfig& config, int64_t dim) {
  if (config.kind == "lfq") return std::bit_width(static_cast<uint64_t>(config.codebook_size)) - 1;
  if (config.kind == "fsq") return static_cast<int64_t>(config.levels.size());
  return config.codebook_dim > 0 ? config.codebook_dim : dim;
}

std::shared_ptr<QuantizerStage> make_stage(const QuantizerConfig& config, int64_t dim, int64_t index) {
  if (config.kind == "lfq") return std::make_shared<BitStage>(config, dim, index);
  if (config.kind == "fsq") return std::make_shared<ScalarStage>(config, index);
  return std::make_shared<VectorStage>(config, dim);
}

}  // namespace

void describe(Schema& s, QuantizerConfig& c) {
  s.option("kind", c.kind, "residual vector, lookup-free or finite scalar quantizer")
      .one_of({"vq", "lfq", "fsq"});
  s.option("quantizers", c.quantizers, "residual stages").at_least(1);
  s.option("groups", c.groups, "groups of channels, each with its own stages").at_least(1);
  s.option("codebook_size", c.codebook_size, "codes of a stage (lfq: a power of two)").at_least(2);
  s.option("codebook_dim", c.codebook_dim, "vq: channels of a code, by projection; 0: all").at_least(0);
  s.option("levels", c.levels, "fsq: levels of every channel").at_least(2);
  s.option("dropout", c.dropout, "in training, use only the first few stages of a batch, drawn at random");
  s.option("dropout_keep", c.dropout_keep, "index of the first stage that may be the last one in use")
      .at_least(0);
  s.option("dropout_multiple_of", c.dropout_multiple_of, "round the stages in use up to a multiple")
      .at_least(1);
  s.option("shared_codebook", c.shared_codebook, "vq: one codebook for all stages");
  s.option("gradient_of_every_stage", c.gradient_of_every_stage,
           "audiolm-pytorch's gradient, which n stages pass on n times, see docs/differences.md");
  s.option("commitment_weight", c.commitment_weight, "vq: pull of the encoder towards its codes").at_least(0);
  s.option("decay", c.decay, "vq: of the moving averages behind the codebook").at_least(0).at_most(1);
  s.option("kmeans_init", c.kmeans_init, "vq: place the codes by k-means on the first batch");
  s.option("kmeans_in_eval", c.kmeans_in_eval,
           "audiolm-pytorch's way: a fresh codebook is placed outside training, too");
  s.option("kmeans_iterations", c.kmeans_iterations, "vq: iterations of that k-means").at_least(1);
  s.option("dead_code_threshold", c.dead_code_threshold, "vq: codes chosen less often are revived; 0: never")
      .at_least(0);
  s.option("cosine", c.cosine, "vq: compare unit vectors by angle");
  s.option("stochastic", c.stochastic, "vq: draw codes by distance in training");
  s.option("temperature", c.temperature, "vq: of that draw").at_least(0);
  s.option("entropy_weight", c.entropy_weight, "lfq: weight of the entropy loss").at_least(0);
  s.option("lfq_commitment_weight", c.lfq_commitment_weight, "lfq: pull towards the bits").at_least(0);
  s.option("diversity", c.diversity, "lfq: weight of even code use inside the entropy loss").at_least(0);
  s.option("entropy_fraction", c.entropy_fraction, "lfq: share of frames the entropy is measured on")
      .at_least(0)
      .at_most(1);
  s.option("entropy_sharpness", c.entropy_sharpness, "lfq: inverse temperature of code probabilities")
      .at_least(0);
}

ResidualQuantizerImpl::ResidualQuantizerImpl(const QuantizerConfig& config, int64_t dim)
    : straight_through_chain_(config.kind != "fsq" && !config.gradient_of_every_stage) {
  const int64_t inner = stage_dim(config, dim);
  if (inner != dim) {
    project_in = register_module("project_in", torch::nn::Linear(dim, inner));
    project_out = register_module("project_out", torch::nn::Linear(inner, dim));
  }
  for (int64_t i = 0; i < config.quantizers; ++i) {
    if (i == 0 || !config.shared_codebook || config.kind != "vq") {
      const auto stage = make_stage(config, inner, i);
      stages->push_back(stage);
      chain_.push_back(stage.get());
    } else {
      chain_.push_back(chain_.front());
    }
  }
  register_module("stages", stages);
}

ResidualQuantizerImpl::Result ResidualQuantizerImpl::forward(const at::Tensor& given, int64_t used,
                                                             Draws* draws, bool update) {
  const at::Tensor x = project_in.is_empty() ? given : project_in(given);
  const at::Tensor no_codes = at::full({x.size(0), x.size(1)}, -1, x.options().dtype(at::kLong));
  const at::Tensor no_loss = at::zeros({}, x.options());
  const at::Tensor prepared = chain_.front()->prepare(x);
  at::Tensor residual = prepared, sum;
  std::vector<at::Tensor> codes, losses;
  for (size_t i = 0; i < chain_.size(); ++i) {
    if (static_cast<int64_t>(i) >= used) {
      codes.push_back(no_codes);
      losses.push_back(no_loss);
      continue;
    }
    const auto stage = chain_[i]->quantize(residual, draws, update);
    residual = residual - stage.vectors.detach();
    sum = sum.defined() ? sum + stage.vectors : stage.vectors;
    codes.push_back(stage.codes);
    losses.push_back(stage.loss.defined() ? stage.loss : no_loss);
  }
  // Every stage passes the whole gradient on to x, so the sum of n stages would pass it n times.
  if (is_training() && straight_through_chain_) sum = straight_through(prepared, sum);
  return {project_out.is_empty() ? sum : project_out(sum), at::stack(codes, -1), at::stack(losses)};
}

at::Tensor ResidualQuantizerImpl::decode(const at::Tensor& codes) {
  at::Tensor sum;
  for (int64_t i = 0; i < codes.size(-1); ++i) {
    const at::Tensor stage_codes = codes.select(-1, i);
    const at::Tensor dropped = (stage_codes < 0).unsqueeze(-1);
    const at::Tensor part =
        chain_.at(static_cast<size_t>(i))->vectors(at::clamp_min(stage_codes, 0)).masked_fill(dropped, 0);
    sum = sum.defined() ? sum + part : part;
  }
  return project_out.is_empty() ? sum : project_out(sum);
}

QuantizerImpl::QuantizerImpl(const QuantizerConfig& config, int64_t dim) : config_(config) {
  require(dim % config.groups == 0, "[quantizer] {} channels do not split into {} groups", dim,
          config.groups);
  if (config.kind == "lfq")
    require(std::has_single_bit(static_cast<uint64_t>(config.codebook_size)),
            "[quantizer] codebook_size of lfq must be a power of two, got {}; try {}", config.codebook_size,
            std::bit_ceil(static_cast<uint64_t>(config.codebook_size)));
  require(config.dropout_keep < config.quantizers || !config.dropout || config.quantizers == 1,
          "[quantizer] dropout_keep {} must be below quantizers {}", config.dropout_keep, config.quantizers);
  codebook_size_ = config.kind == "fsq" ? std::accumulate(config.levels.begin(), config.levels.end(),
                                                          int64_t{1}, std::multiplies<>())
                                        : config.codebook_size;
  for (int64_t i = 0; i < config.groups; ++i)
    groups->push_back(ResidualQuantizer(config, dim / config.groups));
  register_module("groups", groups);
}

int64_t QuantizerImpl::draw_stages_in_use(Draws* draws) {
  const int64_t all = config_.quantizers;
  if (!is_training() || !config_.dropout || all == 1) return all;
  require(draws != nullptr, "[quantizer] training with dropout needs a source of random draws");
  const int64_t used = draws->integer("quantizer dropout", config_.dropout_keep, all) + 1;
  const int64_t multiple = config_.dropout_multiple_of;
  return std::min((used + multiple - 1) / multiple * multiple, all);
}

Quantized QuantizerImpl::forward(const at::Tensor& x, Draws* draws, bool update) {
  const AutocastScope float32(x.device().type(), false);
  const int64_t used = draw_stages_in_use(draws);  // the same in every group
  std::vector<at::Tensor> vectors, codes, losses;
  const auto parts = x.to(at::kFloat).chunk(config_.groups, -1);
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto result = groups->at<ResidualQuantizerImpl>(i).forward(parts[i], used, draws, update);
    vectors.push_back(result.vectors);
    codes.push_back(result.codes);
    losses.push_back(result.losses);
  }
  return {parts.size() == 1 ? vectors.front() : at::cat(vectors, -1), at::stack(codes), at::stack(losses)};
}

at::Tensor QuantizerImpl::decode(const at::Tensor& codes) {
  require(codes.dim() == 4 && codes.size(0) == config_.groups && codes.size(-1) <= config_.quantizers,
          "[quantizer] codes must be [{}, batch, frames, up to {}], got {}", config_.groups,
          config_.quantizers, fmt::join(codes.sizes(), " x "));
  std::vector<at::Tensor> vectors;
  for (int64_t i = 0; i < config_.groups; ++i)
    vectors.push_back(groups->at<ResidualQuantizerImpl>(static_cast<size_t>(i)).decode(codes[i]));
  return vectors.size() == 1 ? vectors.front() : at::cat(vectors, -1);
}

}  // namespace melete

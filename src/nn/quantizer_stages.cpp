#include "nn/quantizer_stages.h"

#include <bit>
#include <cmath>

#include "core/base/error.h"
#include "core/device.h"
#include "nn/codebook.h"
#include "nn/lookup_free.h"
#include "nn/quantizer.h"

namespace melete {

namespace {

// Mean squared distance over the frames that count. x, y [batch, frames, ...], counted [batch, frames]
at::Tensor mean_square(const at::Tensor& x, const at::Tensor& y, const at::Tensor& counted) {
  if (!counted.defined()) return at::mse_loss(x, y);
  return at::mse_loss(x.index({counted}), y.index({counted}));
}

struct VectorStage : QuantizerStage {
  VectorStage(const QuantizerConfig& config, int64_t dim)
      : config_(config), learns_by_gradient_(config.codebook_update == "gradient") {
    CodebookConfig book;
    book.size = config.codebook_size;
    book.dim = dim / config.codebooks;
    book.books = config.separate_codebooks ? config.codebooks : 1;
    book.moving_average = config.codebook_update == "average";
    book.learnable = learns_by_gradient_ || config.orthogonal_weight > 0;
    book.seen_is_kept = config.cross_entropy_commitment;
    book.decay = config.decay;
    book.epsilon = config.epsilon;
    book.kmeans_init = config.kmeans_init;
    book.kmeans_in_eval = config.kmeans_in_eval;
    book.kmeans_iterations = config.kmeans_iterations;
    book.dead_code_threshold = config.dead_code_threshold;
    book.cosine = config.cosine;
    book.stochastic = config.stochastic;
    book.temperature = config.temperature;
    book.differentiable_choice = config.differentiable_choice;
    book.reinmax = config.reinmax;
    book.affine = config.affine;
    book.affine_vectors_decay = config.affine_vectors_decay;
    book.affine_codes_decay = config.affine_codes_decay;
    codebook_ = register_module("codebook", Codebook(book));
  }

  Result quantize(const at::Tensor& given, Draws* draws, bool update, const at::Tensor& counted,
                  const at::Tensor& chosen) override {
    const int64_t batch = given.size(0), frames = given.size(1);
    const at::Tensor x = !config_.cosine          ? split(given)
                         : config_.codebooks == 1 ? split(unit_vectors(given))
                                                  : unit_vectors(split(given));
    const at::Tensor counted_rows = rows_of(counted);
    const auto choice = codebook_->forward(x, draws, update, counted_rows,
                                           chosen.defined() ? chosen.reshape({1, -1}) : chosen);
    const at::Tensor codes = codes_of(choice.codes, batch, frames);
    if (!is_training()) return {join(choice.vectors, batch, frames), codes, {}};
    const at::Tensor passed = straight_through(x, choice.vectors);
    return {join(passed, batch, frames), codes, loss(x, choice, counted_rows, draws)};
  }

  at::Tensor vectors(const at::Tensor& codes) override { return codebook_->vectors(codes); }
  at::Tensor codes() const override { return codebook_->codes_seen().squeeze(0); }
  bool ready() override { return codebook_->ready(); }

 private:
  // [batch, frames, heads * dim] -> [books, rows, dim]: a book a head, or all heads' rows for the one book.
  at::Tensor split(const at::Tensor& x) const {
    if (config_.codebooks == 1) return x.reshape({1, -1, x.size(-1)});
    const int64_t heads = config_.codebooks, dim = x.size(2) / heads;
    const at::Tensor by_head = x.view({x.size(0), x.size(1), heads, dim});
    if (config_.separate_codebooks) return by_head.permute({2, 0, 1, 3}).reshape({heads, -1, dim});
    return by_head.transpose(1, 2).reshape({1, -1, dim});
  }

  at::Tensor join(const at::Tensor& vectors, int64_t batch, int64_t frames) const {
    const int64_t heads = config_.codebooks, dim = vectors.size(2);
    if (heads == 1) return vectors.view({batch, frames, dim});
    const at::Tensor by_head = config_.separate_codebooks
                                   ? vectors.view({heads, batch, frames, dim}).permute({1, 2, 0, 3})
                                   : vectors.view({batch, heads, frames, dim}).transpose(1, 2);
    return by_head.reshape({batch, frames, heads * dim});
  }

  at::Tensor codes_of(const at::Tensor& codes, int64_t batch, int64_t frames) const {
    const int64_t heads = config_.codebooks;
    if (config_.separate_codebooks) return codes.view({heads, batch, frames}).permute({1, 2, 0}).contiguous();
    return codes.view({batch, heads, frames}).transpose(1, 2).contiguous();
  }

  // counted [batch, frames] as the rows of split()
  at::Tensor rows_of(const at::Tensor& counted) const {
    if (!counted.defined() || config_.codebooks == 1 || config_.separate_codebooks)
      return counted.defined() ? counted.flatten() : counted;
    return counted.unsqueeze(1).expand({-1, config_.codebooks, -1}).flatten();
  }

  at::Tensor loss(const at::Tensor& x, const CodebookImpl::Choice& choice, const at::Tensor& counted,
                  Draws* draws) const {
    at::Tensor total = config_.commitment_weight * commitment(x, choice, counted);
    if (config_.orthogonal_weight > 0)
      total = total + config_.orthogonal_weight * orthogonality(choice.codes, draws);
    return total;
  }

  at::Tensor commitment(const at::Tensor& x, const CodebookImpl::Choice& choice,
                        const at::Tensor& counted) const {
    const at::Tensor every_book =
        counted.defined() ? counted.unsqueeze(0).expand({x.size(0), -1}) : at::Tensor();
    if (!config_.cross_entropy_commitment)
      return mean_square(x, learns_by_gradient_ ? choice.vectors : choice.vectors.detach(), every_book);
    // Cross entropy of the chosen code among all, by how near they are.
    // The affine map makes codes of its own, which nobody moves.
    const bool moved = config_.commitment_gradient_of_moved && !config_.affine;
    const at::Tensor nearness = moved ? codebook_->nearness(x, choice.seen, codebook_->codes_seen())
                                      : codebook_->nearness(x, choice.seen);
    const at::Tensor likelihood =
        at::log_softmax(nearness, -1).gather(-1, choice.codes.unsqueeze(-1)).squeeze(-1);
    return -(counted.defined() ? likelihood.index({every_book}) : likelihood).mean();
  }

  // Shin et al. 2021, equation 2: codes that point in different directions.
  at::Tensor orthogonality(const at::Tensor& chosen, Draws* draws) const {
    const CodebookConfig& book = codebook_->config();
    at::Tensor codes = codebook_->embedding.view({book.books, book.size, book.dim});
    if (config_.orthogonal_active_only) codes = codes.index_select(1, std::get<0>(at::_unique(chosen)));
    if (const int64_t most = config_.orthogonal_max_codes; most > 0 && codes.size(1) > most) {
      require(draws != nullptr, "[quantizer] orthogonal_max_codes needs a source of random draws");
      codes = codes.index_select(1, sent_to(codes.device(), draws->rows("orthogonal", codes.size(1), most)));
    }
    const at::Tensor directions = unit_vectors(codes);
    const double count = static_cast<double>(codes.size(1));
    const at::Tensor overlap = at::bmm(directions, directions.transpose(1, 2)).square().sum();
    return overlap / (static_cast<double>(book.books) * count * count) - 1 / count;
  }

  QuantizerConfig config_;
  bool learns_by_gradient_;
  Codebook codebook_{nullptr};
};

struct BitStage : QuantizerStage {
  BitStage(const QuantizerConfig& config, int64_t dim, int64_t index)
      : config_(config),
        bits_(dim / config.codebooks),
        scale_(config.scale * std::exp2(-static_cast<double>(index))) {
    // The first channel is the most significant bit.
    place_value_ = at::pow(2, at::arange(bits_ - 1, -1, -1, at::kLong));
  }

  Result quantize(const at::Tensor& given, Draws* draws, bool, const at::Tensor& counted,
                  const at::Tensor&) override {
    const bool several = config_.codebooks > 1;
    const at::Tensor x =
        several ? given.view({given.size(0), given.size(1), config_.codebooks, bits_}) : given;
    const at::Tensor positive = x > 0;
    const at::Tensor signs =
        at::where(positive, at::full({}, scale_, x.options()), at::full({}, -scale_, x.options()));
    at::Tensor codes = (positive.to(at::kLong) * sent_to(x.device(), place_value_)).sum(-1);
    if (!several) codes = codes.unsqueeze(-1);
    if (!is_training()) return {signs.reshape_as(given), codes, {}};
    return {straight_through(x, signs).reshape_as(given), codes,
            config_.entropy_weight * entropy_loss(x, draws, counted) +
                config_.lfq_commitment_weight * mean_square(x, signs, counted)};
  }

  at::Tensor vectors(const at::Tensor& codes) override {
    const at::Tensor bits =
        codes.unsqueeze(-1).bitwise_and(sent_to(codes.device(), place_value_)).ne(0).to(at::kFloat);
    return (bits * (2 * scale_) - scale_).flatten(-2);
  }

 private:
  at::Tensor entropy_loss(const at::Tensor& x, Draws* draws, const at::Tensor& counted) {
    at::Tensor rows = counted.defined() ? x.index({counted}) : x;
    rows = rows.reshape({-1, config_.codebooks, bits_});
    if (config_.entropy_fraction < 1) {
      const int64_t all = rows.size(0);
      const auto kept = static_cast<int64_t>(static_cast<double>(all) * config_.entropy_fraction);
      require(draws != nullptr, "[quantizer] entropy_fraction needs a source of random draws");
      const at::Tensor order = sent_to(rows.device(), draws->normal("entropy", {all}).argsort());
      rows = rows.index({order < kept});
    }
    LookupFreeEntropy entropy;
    if (config_.factorised_entropy) {
      entropy = factorised_entropy(rows, config_.entropy_sharpness, scale_);
    } else {
      if (!codebook_.defined())
        codebook_ = vectors(at::arange(config_.codebook_size, at::kLong).unsqueeze(-1));
      entropy = dense_entropy(rows, sent_to(rows.device(), codebook_), config_.entropy_sharpness);
    }
    return entropy.of_frames - config_.diversity * entropy.of_use;
  }

  QuantizerConfig config_;
  int64_t bits_;
  double scale_;
  at::Tensor place_value_, codebook_;
};

struct ScalarStage : QuantizerStage {
  ScalarStage(const QuantizerConfig& config, int64_t index)
      : codebooks_(config.codebooks), channels_(static_cast<int64_t>(config.levels.size())) {
    levels_ = at::tensor(config.levels, at::kFloat);
    half_width_ = at::floor(levels_ / 2);
    scale_ = at::pow(levels_ - 1, -static_cast<double>(index));
    std::vector<int64_t> basis{1};
    for (size_t i = 0; i + 1 < config.levels.size(); ++i) basis.push_back(basis.back() * config.levels[i]);
    basis_ = at::tensor(basis, at::kLong);
    integer_levels_ = at::tensor(config.levels, at::kLong);
  }

  at::Tensor prepare(const at::Tensor& x) override {
    settle(x.device());
    return bound(split(x)).reshape_as(x);
  }

  Result quantize(const at::Tensor& given, Draws*, bool, const at::Tensor&, const at::Tensor&) override {
    settle(given.device());
    const at::Tensor bounded = bound(split(given) / scale_);
    const at::Tensor rounded = at::round(bounded.detach());
    const at::Tensor codes = ((rounded + half_width_).to(at::kLong) * basis_).sum(-1);
    const at::Tensor vectors = straight_through(bounded, rounded) / half_width_ * scale_;
    return {vectors.reshape_as(given), codes, {}};
  }

  at::Tensor vectors(const at::Tensor& codes) override {
    settle(codes.device());
    const at::Tensor digits =
        at::remainder(at::div(codes.unsqueeze(-1), basis_, "floor"), integer_levels_).to(at::kFloat);
    return ((digits - half_width_) / half_width_ * scale_).flatten(-2);
  }

 private:
  at::Tensor split(const at::Tensor& x) const {
    return x.view({x.size(0), x.size(1), codebooks_, channels_});
  }

  // Squashes every channel into its range of levels; even counts of levels sit half a step off zero.
  at::Tensor bound(const at::Tensor& x) const {
    const at::Tensor half = (levels_ - 1) * 1.001 / 2;
    const at::Tensor offset = at::where(at::remainder(levels_, 2) == 0, at::full({}, 0.5f, half.options()),
                                        at::zeros({}, half.options()));
    return at::tanh(x + at::atanh(offset / half)) * half - offset;
  }

  // Constants are no buffers, so they come along by themselves.
  void settle(const at::Device& device) {
    if (levels_.device() == device) return;
    for (at::Tensor* constant : {&levels_, &half_width_, &scale_, &basis_, &integer_levels_})
      *constant = constant->to(device);
  }

  int64_t codebooks_, channels_;
  at::Tensor levels_, half_width_, scale_, basis_, integer_levels_;
};

}  // namespace

at::Tensor straight_through(const at::Tensor& from, const at::Tensor& to) {
  return from + (to - from).detach();
}

int64_t stage_dim(const QuantizerConfig& config, int64_t dim) {
  if (config.kind == "lfq")
    return (std::bit_width(static_cast<uint64_t>(config.codebook_size)) - 1) * config.codebooks;
  if (config.kind == "fsq") return static_cast<int64_t>(config.levels.size()) * config.codebooks;
  return (config.codebook_dim > 0 ? config.codebook_dim : dim) * config.codebooks;
}

std::shared_ptr<QuantizerStage> make_stage(const QuantizerConfig& config, int64_t dim, int64_t index) {
  if (config.kind == "lfq") return std::make_shared<BitStage>(config, dim, index);
  if (config.kind == "fsq") return std::make_shared<ScalarStage>(config, index);
  return std::make_shared<VectorStage>(config, dim);
}

}  // namespace melete

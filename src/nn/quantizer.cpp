#include "nn/quantizer.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <numeric>

#include "core/autocast.h"
#include "core/base/error.h"
#include "nn/named_activation.h"

namespace melete {

void describe(Schema& s, QuantizerConfig& c) {
  s.option("kind", c.kind, "residual vector, lookup-free or finite scalar quantizer")
      .one_of({"vq", "lfq", "fsq"});
  s.option("quantizers", c.quantizers, "residual stages").at_least(1);
  s.option("groups", c.groups, "groups of channels, each with its own stages").at_least(1);
  s.option("codebook_size", c.codebook_size, "codes of a stage (lfq: a power of two)").at_least(2);
  s.option("codebook_dim", c.codebook_dim, "vq: channels of a code, by projection; 0: all").at_least(0);
  s.option("codebooks", c.codebooks, "codes that one stage gives for a frame, each for its share of channels")
      .at_least(1);
  s.option("separate_codebooks", c.separate_codebooks, "vq: each of them from a codebook of its own");
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
  s.option("epsilon", c.epsilon, "vq: smooths the counts of rare codes").at_least(0);
  s.option("kmeans_init", c.kmeans_init, "vq: place the codes by k-means on the first batch");
  s.option("kmeans_in_eval", c.kmeans_in_eval,
           "audiolm-pytorch's way: a fresh codebook is placed outside training, too");
  s.option("kmeans_iterations", c.kmeans_iterations, "vq: iterations of that k-means").at_least(1);
  s.option("dead_code_threshold", c.dead_code_threshold, "vq: codes chosen less often are revived; 0: never")
      .at_least(0);
  s.option("cosine", c.cosine, "vq: compare unit vectors by angle");
  s.option("stochastic", c.stochastic, "vq: draw codes by distance in training");
  s.option("temperature", c.temperature, "vq: of that draw").at_least(0);
  s.option("codebook_update", c.codebook_update,
           "vq: codes follow the vectors that choose them, or learn by gradient, or stay")
      .one_of({"average", "gradient", "none"});
  s.option("cross_entropy_commitment", c.cross_entropy_commitment,
           "vq: commitment as cross entropy of the chosen code by its distance");
  s.option("commitment_gradient_of_moved", c.commitment_gradient_of_moved,
           "audiolm-pytorch's gradient of that, by codes that the averages have moved meanwhile, see "
           "docs/differences.md");
  s.option("orthogonal_weight", c.orthogonal_weight, "vq: of codes that point in different directions")
      .at_least(0);
  s.option("orthogonal_active_only", c.orthogonal_active_only,
           "vq: only of the codes that a batch has chosen");
  s.option("orthogonal_max_codes", c.orthogonal_max_codes, "vq: of so many codes, drawn at random; 0: all")
      .at_least(0);
  s.option("differentiable_choice", c.differentiable_choice,
           "vq: the choice of a code passes gradients on as a softmax would (with codebook_update gradient)");
  s.option("reinmax", c.reinmax, "vq: of second order, Liu et al. 2023");
  s.option("synchronous_update", c.synchronous_update,
           "vq: the gradient that is passed on grows by this share, Huh et al. 2023")
      .at_least(0)
      .at_most(1);
  s.option("affine", c.affine, "vq: codes are seen with the mean and spread of the vectors, Huh et al. 2023");
  s.option("affine_vectors_decay", c.affine_vectors_decay, "vq: of the averages of the vectors")
      .at_least(0)
      .at_most(1);
  s.option("affine_codes_decay", c.affine_codes_decay, "vq: of the averages of the codes")
      .at_least(0)
      .at_most(1);
  s.option("search_beams", c.search_beams,
           "vq, outside of training: beginnings of a frame's codes that are followed to the last stage")
      .at_least(1);
  s.option("training_beams", c.training_beams, "vq: the same in training").at_least(1);
  s.option("entropy_weight", c.entropy_weight, "lfq: weight of the entropy loss").at_least(0);
  s.option("lfq_commitment_weight", c.lfq_commitment_weight, "lfq: pull towards the bits").at_least(0);
  s.option("diversity", c.diversity, "lfq: weight of even code use inside the entropy loss").at_least(0);
  s.option("entropy_fraction", c.entropy_fraction, "lfq: share of frames the entropy is measured on")
      .at_least(0)
      .at_most(1);
  s.option("entropy_sharpness", c.entropy_sharpness, "lfq: inverse temperature of code probabilities")
      .at_least(0);
  s.option("factorised_entropy", c.factorised_entropy,
           "lfq: entropy bit by bit, without a table of all codes for every frame");
  s.option("scale", c.scale, "lfq: size of the first stage's bits").at_least(0);
  s.option("lfq_activation", c.lfq_activation, "lfq: before the straight-through gradient")
      .one_of(activation_names());
}

ResidualQuantizerImpl::ResidualQuantizerImpl(const QuantizerConfig& config, int64_t dim)
    : straight_through_chain_(config.kind != "fsq" && !config.gradient_of_every_stage),
      codebooks_(config.codebooks),
      config_(config) {
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
                                                             Draws* draws, bool update,
                                                             const at::Tensor& counted) {
  const at::Tensor x = project_in.is_empty() ? given : project_in(given);
  const at::Tensor no_codes = at::full({x.size(0), x.size(1), codebooks_}, -1, x.options().dtype(at::kLong));
  const at::Tensor no_loss = at::zeros({}, x.options());
  const at::Tensor prepared = chain_.front()->prepare(x);
  if (!is_training() && config_.search_beams > 1) {
    const at::Tensor found = search(prepared, used, config_.search_beams);
    return {decode(found), found, no_loss.expand({config_.quantizers})};
  }
  at::Tensor found;  // undefined: every stage chooses for itself
  if (is_training() && config_.training_beams > 1 && ready(used)) {
    const at::NoGradGuard no_grad;
    found = search(prepared, used, config_.training_beams);
  }
  at::Tensor residual = prepared, sum;
  std::vector<at::Tensor> codes, losses;
  for (size_t i = 0; i < chain_.size(); ++i) {
    if (static_cast<int64_t>(i) >= used) {
      codes.push_back(no_codes);
      losses.push_back(no_loss);
      continue;
    }
    const at::Tensor chosen = found.defined() ? found.select(2, static_cast<int64_t>(i)) : at::Tensor();
    const auto stage = chain_[i]->quantize(residual, draws, update, counted, chosen);
    residual = residual - stage.vectors.detach();
    sum = sum.defined() ? sum + stage.vectors : stage.vectors;
    codes.push_back(stage.codes);
    losses.push_back(stage.loss.defined() ? stage.loss : no_loss);
  }
  if (is_training()) sum = passed_on(prepared, sum);
  return {project_out.is_empty() ? sum : project_out(sum), at::cat(codes, -1), at::stack(losses)};
}

bool ResidualQuantizerImpl::ready(int64_t used) const {
  return std::all_of(chain_.begin(), chain_.begin() + used,
                     [](QuantizerStage* stage) { return stage->ready(); });
}

at::Tensor ResidualQuantizerImpl::search(const at::Tensor& x, int64_t used, int64_t beams) const {
  const int64_t rows = x.size(0) * x.size(1), dim = x.size(2);
  at::Tensor left = x.reshape({rows, 1, dim});                               // [rows, kept, dim]
  at::Tensor codes = at::empty({rows, 1, 0}, x.options().dtype(at::kLong));  // [rows, kept, stages so far]
  for (int64_t i = 0; i < used; ++i) {
    const at::Tensor book = chain_[static_cast<size_t>(i)]->codes();  // [size, dim]
    const int64_t size = book.size(0);
    // [rows, kept, size] squared distances
    const at::Tensor errors =
        left.square().sum(-1, true) - 2 * at::matmul(left, book.t()) + book.square().sum(1);
    const bool last = i + 1 == used;
    const int64_t kept = last ? 1 : std::min(beams, errors.size(1) * size);
    const at::Tensor best = std::get<1>(errors.flatten(1).topk(kept, 1, /*largest=*/false));  // [rows, kept]
    const at::Tensor from = at::floor_divide(best, size).unsqueeze(-1), code = at::remainder(best, size);
    codes = at::cat({codes.gather(1, from.expand({-1, -1, codes.size(2)})), code.unsqueeze(-1)}, 2);
    left = left.gather(1, from.expand({-1, -1, dim})) -
           book.index_select(0, code.flatten()).view({rows, kept, dim});
  }
  return codes.view({x.size(0), x.size(1), -1});
}

at::Tensor ResidualQuantizerImpl::passed_on(const at::Tensor& x, const at::Tensor& sum) const {
  const bool bent = config_.lfq_activation != "none" && config_.kind == "lfq";
  at::Tensor passed = sum;
  // Every stage passes the whole gradient on to x, so the sum of n stages would pass it n times.
  if (straight_through_chain_ || bent)
    passed = straight_through(bent ? activate(config_.lfq_activation, x) : x, passed);
  if (config_.synchronous_update > 0)  // Huh et al. 2023, equation 21
    passed = passed + config_.synchronous_update * (passed - passed.detach());
  return passed;
}

at::Tensor ResidualQuantizerImpl::decode(const at::Tensor& given) {
  const int64_t missing[] = {0,
                             (codebooks_ - given.size(-1) % codebooks_) % codebooks_};  // of the last stage
  const at::Tensor codes = missing[1] > 0 ? at::constant_pad_nd(given, missing, -1) : given;
  at::Tensor sum;
  for (int64_t i = 0; i * codebooks_ < codes.size(-1); ++i) {
    const at::Tensor stage_codes = codes.narrow(-1, i * codebooks_, codebooks_);
    const at::Tensor part = chain_.at(static_cast<size_t>(i))->vectors(at::clamp_min(stage_codes, 0));
    const at::Tensor absent = (stage_codes < 0).repeat_interleave(part.size(-1) / codebooks_, -1);
    sum = sum.defined() ? sum + part.masked_fill(absent, 0) : part.masked_fill(absent, 0);
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
  require(!config.orthogonal_active_only || !config.separate_codebooks,
          "[quantizer] orthogonal_active_only is for one codebook; switch separate_codebooks off");
  require(!config.reinmax || config.differentiable_choice,
          "[quantizer] reinmax is a kind of differentiable_choice; switch that on, too");
  require((config.search_beams == 1 && config.training_beams == 1) ||
              (config.kind == "vq" && config.codebooks == 1 && !config.cosine),
          "[quantizer] search_beams and training_beams are for vq with one codebook a stage and plain "
          "distances; set "
          "them to 1");
  require(
      config.training_beams == 1 || !config.stochastic,
      "[quantizer] stochastic codes are drawn, training_beams looks for the best; switch one of them off");
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

Quantized QuantizerImpl::forward(const at::Tensor& x, Draws* draws, bool update, const at::Tensor& counted) {
  const AutocastScope float32(x.device().type(), false);
  const int64_t used = draw_stages_in_use(draws);  // the same in every group
  std::vector<at::Tensor> vectors, codes, losses;
  const auto parts = x.to(at::kFloat).chunk(config_.groups, -1);
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto result = groups->at<ResidualQuantizerImpl>(i).forward(parts[i], used, draws, update, counted);
    vectors.push_back(result.vectors);
    codes.push_back(result.codes);
    losses.push_back(result.losses);
  }
  return {parts.size() == 1 ? vectors.front() : at::cat(vectors, -1), at::stack(codes), at::stack(losses),
          used};
}

at::Tensor QuantizerImpl::decode(const at::Tensor& codes) {
  require(codes.dim() == 4 && codes.size(0) == config_.groups &&
              codes.size(-1) <= config_.quantizers * config_.codebooks,
          "[quantizer] codes must be [{}, batch, frames, up to {}], got {}", config_.groups,
          config_.quantizers * config_.codebooks, fmt::join(codes.sizes(), " x "));
  std::vector<at::Tensor> vectors;
  for (int64_t i = 0; i < config_.groups; ++i)
    vectors.push_back(groups->at<ResidualQuantizerImpl>(static_cast<size_t>(i)).decode(codes[i]));
  return vectors.size() == 1 ? vectors.front() : at::cat(vectors, -1);
}

}  // namespace melete

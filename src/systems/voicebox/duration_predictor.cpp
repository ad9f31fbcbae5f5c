#include "systems/voicebox/duration_predictor.h"

#include "core/base/error.h"
#include "core/device.h"
#include "losses/flow_matching.h"
#include "nn/draws.h"
#include "nn/feed_forward.h"
#include "systems/voicebox/masks.h"
#include "systems/voicebox/sampling.h"

namespace melete::voicebox {

namespace {

// phonemes [batch, n] repeated by counts int64 [batch, n]; short rows are filled up
at::Tensor repeat(const at::Tensor& phonemes, const at::Tensor& counts, int64_t filling) {
  const at::Tensor ends = counts.cumsum(1);  // where each phoneme ends
  const int64_t frames = ends.numel() > 0 ? ends.max().item<int64_t>() : 0;
  const at::Tensor times = at::arange(frames, ends.options()).expand({ends.size(0), frames}).contiguous();
  // The phoneme of a frame is the first that ends after it.
  const at::Tensor index = at::searchsorted(ends.contiguous(), times, false, true);
  const at::Tensor there = times < ends.select(1, ends.size(1) - 1).unsqueeze(1);
  const at::Tensor ids = phonemes.gather(1, index.clamp_max(phonemes.size(1) - 1));
  return at::where(there, ids, at::full_like(ids, filling));
}

}  // namespace

DurationConfig::DurationConfig() {
  transformer.dim = 512;
  transformer.depth = 10;
  transformer.heads = 8;
  transformer.register_tokens = 0;
  transformer.skip_connections = false;
}

void describe(Schema& s, DurationConfig& c) {
  s.option("phonemes", c.phonemes, "that there are; 0: those of the timings").at_least(0);
  s.option("phoneme_dim", c.phoneme_dim, "of their embeddings").at_least(1);
  s.option("condition_dim", c.condition_dim, "values that are known beside a phoneme").at_least(1);
  s.option("project_condition", c.project_condition, "to the transformer's dim");
  s.section("positions", c.positions, "convolution that tells phonemes apart by their neighbours");
  s.section("transformer", c.transformer, "between input and output");
}

void describe(Schema& s, DurationLossConfig& c) {
  s.option("condition_drop", c.condition_drop, "share of rows without known durations")
      .at_least(0)
      .at_most(1);
  s.option("hide_all", c.hide_all, "share of rows whose durations are all hidden").at_least(0).at_most(1);
  s.option("hidden_share_low", c.hidden_share_low, "least share of phonemes hidden otherwise")
      .at_least(0)
      .at_most(1);
  s.option("hidden_share_high", c.hidden_share_high, "largest share").at_least(0).at_most(1);
}

DurationPredictorImpl::DurationPredictorImpl(const DurationConfig& config) : config_(config) {
  const int64_t dim = config.transformer.dim;
  require(config.project_condition || config.condition_dim == dim,
          "[duration] a condition of {} values needs project_condition to reach the dim {}",
          config.condition_dim, dim);
  if (config.project_condition)
    condition_projection =
        register_module("condition_projection", torch::nn::Linear(config.condition_dim, dim));
  phoneme_embedding =
      register_module("phoneme_embedding", torch::nn::Embedding(config.phonemes, config.phoneme_dim));
  null_condition = register_buffer("null_condition", at::zeros({dim}));
  input = register_module("input", torch::nn::Linear(config.phoneme_dim + dim, dim));
  position_convolution = register_module("position_convolution", PositionConvolution(config.positions, dim));
  transformer = register_module("transformer", Transformer(config.transformer));
  output = register_module("output", torch::nn::Linear(dim, 1));
}

at::Tensor DurationPredictorImpl::forward(const DurationInput& given, Draws* draws) {
  const int64_t count = given.phonemes.size(1);
  at::Tensor condition =
      condition_projection.is_empty() ? given.condition : project(given.condition, condition_projection);
  if (given.hidden.defined()) condition = condition * given.hidden.logical_not().unsqueeze(2);
  if (given.dropped.defined())
    condition =
        at::where(given.dropped.view({-1, 1, 1}), null_condition.to(condition.scalar_type()), condition);
  const at::Tensor valid = given.valid.defined() ? given.valid : given.phonemes >= 0;
  const at::Tensor phonemes = phoneme_embedding(given.phonemes.clamp_min(0));
  at::Tensor x = project(at::cat({phonemes, with_length(condition, count)}, -1), input);
  x = position_convolution(x, valid) + x;
  x = transformer(x, transformer->positions(count), valid, at::Tensor(), draws);
  return project(x, output).squeeze(-1);
}

at::Tensor DurationPredictorImpl::guided(const DurationInput& given, double guidance) {
  const at::NoGradGuard no_grad;
  const at::Tensor told = forward(given);
  if (guidance == 1) return told;
  DurationInput without = given;
  without.dropped = at::ones({given.phonemes.size(0)}, given.phonemes.options().dtype(at::kBool));
  const at::Tensor untold = forward(without);
  return untold + (told - untold) * guidance;
}

at::Tensor repeat_by_durations(const at::Tensor& phonemes, const at::Tensor& durations) {
  const at::Tensor counts = durations.round().clamp_min(1).to(at::kLong);
  return repeat(phonemes, counts.masked_fill(phonemes < 0, 0), -1);
}

at::Tensor repeat_as_upstream(const at::Tensor& phonemes, const at::Tensor& durations) {
  return repeat(phonemes, durations.clamp_min(1).to(at::kLong), 0);
}

at::Tensor hidden_durations(const at::Tensor& valid, const DurationLossConfig& config, Draws& draws) {
  const int64_t rows = valid.size(0);
  const at::Tensor spans =
      span_mask(valid.sum(1), valid.size(1), config.hidden_share_low, config.hidden_share_high, draws);
  const at::Tensor whole = sent_to(valid.device(), chance_mask({rows}, config.hide_all, "hide_all", draws));
  return at::logical_or(spans, whole.unsqueeze(1));
}

DurationLosses duration_losses(DurationPredictor& model, const DurationInput& given,
                               const at::Tensor& durations, Draws* draws) {
  DurationLosses losses;
  losses.durations = model->forward(given, draws);
  at::Tensor counted = given.valid.defined() ? given.valid : given.phonemes >= 0;
  if (given.hidden.defined()) counted = at::logical_and(counted, given.hidden);
  losses.total = row_means((losses.durations.to(at::kFloat) - durations).abs(), counted).mean();
  const at::Tensor there = counted.to(durations.scalar_type());
  const at::Tensor usual = (durations * there).sum() / there.sum().clamp_min(1);
  losses.chance = row_means((usual - durations).abs(), counted).mean();
  return losses;
}

}  // namespace melete::voicebox

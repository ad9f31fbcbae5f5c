#include "systems/voicebox/flow_matching.h"

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/device.h"
#include "losses/flow_matching.h"
#include "nn/draws.h"
#include "systems/voicebox/masks.h"

namespace melete::voicebox {

namespace {

// losses.times and losses.hidden are set, and dropped where rows are.
FlowLosses losses_on_line(Voicebox& model, const FlowBatch& batch, const FlowMatchingConfig& config,
                          const at::Tensor& noise, FlowLosses losses, Draws* draws) {
  Condition condition;
  condition.context = batch.frames;
  condition.tokens = batch.tokens;
  const Drafted drafted = model->draft(condition, draws);
  const FlowLine line = flow_line(batch.frames, drafted.around(noise), losses.times, config.sigma);
  condition.context = batch.context;
  if (!condition.context.defined()) condition.context = config.as_upstream ? line.direction : batch.frames;
  condition.hidden = losses.hidden;
  condition.valid = batch.valid;
  condition.dropped = losses.dropped;
  const auto prepared = model->prepare(condition, drafted);
  const at::Tensor guess = model->forward(line.point, losses.times, prepared, draws);
  const at::Tensor counted =
      prepared.valid.defined() ? at::logical_and(losses.hidden, prepared.valid) : losses.hidden;
  const auto by_row_of = [&](const at::Tensor& way) {
    return row_means((drafted.defined() ? way / drafted.deviation.detach() : way).square().mean(-1), counted);
  };
  const at::Tensor by_row = by_row_of(guess.to(at::kFloat) - line.direction);
  losses.total = by_row.mean();
  losses.chance = by_row_of(line.direction.detach()).mean();
  losses.rows = by_row.detach();
  if (!drafted.defined()) return losses;
  const DraftLosses of_draft = draft_losses(drafted, batch.frames, prepared.valid);
  const at::Tensor draft_error = of_draft.rows.mean();
  losses.total = losses.total + draft_error + of_draft.deviation;
  losses.draft = draft_error.detach();
  return losses;
}

}  // namespace

void describe(Schema& s, FlowMatchingConfig& c) {
  s.option("sigma", c.sigma, "deviation of the noise that is left at the end").at_least(0).at_most(1);
  s.option("condition_drop", c.condition_drop, "share of rows that are told nothing").at_least(0).at_most(1);
  s.option("hide_all", c.hide_all, "share of rows whose whole context is hidden").at_least(0).at_most(1);
  s.option("hidden_share_low", c.hidden_share_low, "least share of frames that is hidden otherwise")
      .at_least(0)
      .at_most(1);
  s.option("hidden_share_high", c.hidden_share_high, "largest share").at_least(0).at_most(1);
  s.option("as_upstream", c.as_upstream, "voicebox-pytorch's arithmetic, see docs/differences.md");
}

at::Tensor drawn_mask(const FlowBatch& batch, const FlowMatchingConfig& config, Draws& draws) {
  const int64_t rows = batch.frames.size(0), frames = batch.frames.size(1);
  const auto device = batch.frames.device();
  const bool own_lengths = !config.as_upstream && batch.valid.defined() && batch.valid.size(1) == frames;
  const at::Tensor lengths = row_lengths(own_lengths ? batch.valid : at::Tensor(), rows, frames, device);
  const at::Tensor spans =
      span_mask(lengths, frames, config.hidden_share_low, config.hidden_share_high, draws);
  if (config.as_upstream) return spans;
  const at::Tensor whole = sent_to(device, chance_mask({rows}, config.hide_all, "hide_all", draws));
  return at::logical_or(spans, whole.unsqueeze(1));
}

FlowLosses flow_matching_losses(Voicebox& model, const FlowBatch& batch, const FlowMatchingConfig& config,
                                Draws& draws) {
  const auto device = batch.frames.device();
  const int64_t rows = batch.frames.size(0);
  const at::Tensor noise = sent_to(device, draws.normal("noise", batch.frames.sizes()));
  FlowLosses losses;
  losses.times = sent_to(device, draws.uniform("times", {rows}));
  losses.hidden = batch.hidden.defined() ? batch.hidden : drawn_mask(batch, config, draws);
  if (config.condition_drop > 0)
    losses.dropped = sent_to(device, chance_mask({rows}, config.condition_drop, "condition_drop", draws));
  return losses_on_line(model, batch, config, noise, losses, model->is_training() ? &draws : nullptr);
}

FlowLosses flow_matching_losses(Voicebox& model, const FlowBatch& batch, const FlowMatchingConfig& config,
                                const FlowDraws& given) {
  FlowLosses losses;
  losses.times = given.times;
  losses.hidden = given.hidden;
  return losses_on_line(model, batch, config, given.noise, losses, nullptr);
}

std::vector<std::pair<std::string, at::Tensor>> losses_by_time(const FlowLosses& losses, int64_t parts) {
  require(parts >= 1, "[voicebox] expected one stretch of the time or more, got {}", parts);
  std::vector<std::pair<std::string, at::Tensor>> result;
  for (int64_t i = 0; i < parts; ++i) {
    const double low = static_cast<double>(i) / static_cast<double>(parts);
    const double high = static_cast<double>(i + 1) / static_cast<double>(parts);
    const at::Tensor inside = at::logical_and(losses.times >= low, losses.times < high);
    if (!inside.any().item<bool>()) continue;
    result.emplace_back(fmt::format("t {:.2f}-{:.2f}", low, high), losses.rows.masked_select(inside).mean());
  }
  return result;
}

}  // namespace melete::voicebox

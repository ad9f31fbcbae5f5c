#include "systems/voicebox/distillation.h"

#include "core/device.h"
#include "losses/flow_matching.h"
#include "nn/draws.h"
#include "systems/voicebox/masks.h"

namespace melete::voicebox {

namespace {

constexpr int64_t kFewSteps[] = {4, 8, 16};
constexpr int64_t kManySteps = 32;

}  // namespace

void describe(Schema& s, DistillationConfig& c) {
  s.option("steps", c.steps, "that the new network is to need").at_least(1);
  s.option("teacher_steps", c.teacher_steps, "of the teacher in each of them").at_least(1);
  s.option("guidance", c.guidance, "of the teacher; becomes part of the new network");
}

FlowLosses distillation_losses(Voicebox& student, Voicebox& teacher, const FlowBatch& batch,
                               const FlowMatchingConfig& flow, const DistillationConfig& config,
                               Draws& draws) {
  const auto device = batch.frames.device();
  const int64_t rows = batch.frames.size(0);
  const at::Tensor noise = sent_to(device, draws.normal("noise", batch.frames.sizes()));
  const auto steps = static_cast<double>(config.steps);
  FlowLosses losses;
  losses.times = (sent_to(device, draws.uniform("times", {rows})) * steps).floor() / steps;
  losses.hidden = batch.hidden.defined() ? batch.hidden : drawn_mask(batch, flow, draws);
  Condition condition;
  condition.context = batch.context.defined() ? batch.context : batch.frames;
  condition.hidden = losses.hidden;
  condition.tokens = batch.tokens;
  condition.valid = batch.valid;
  const Drafted drafted = teacher->draft(condition);  // the student's own stays the same
  const FlowLine line = flow_line(batch.frames, drafted.around(noise), losses.times, flow.sigma);

  at::Tensor end = line.point;
  const double small = 1 / (steps * static_cast<double>(config.teacher_steps));
  const Flow taught = guided_flow(teacher, condition, config.guidance);
  for (int64_t i = 0; i < config.teacher_steps; ++i)
    end = end + small * taught(losses.times + small * static_cast<double>(i), end);
  const at::Tensor wanted = (end - line.point) * steps;

  const auto prepared = student->prepare(condition);
  const at::Tensor guess =
      student->forward(line.point, losses.times, prepared, student->is_training() ? &draws : nullptr);
  const at::Tensor counted =
      prepared.valid.defined() ? at::logical_and(losses.hidden, prepared.valid) : losses.hidden;
  at::Tensor error = guess.to(at::kFloat) - wanted;
  if (drafted.defined()) error = error / drafted.deviation.detach();
  const at::Tensor by_row = row_means(error.square().mean(-1), counted);
  losses.total = by_row.mean();
  losses.rows = by_row.detach();
  return losses;
}

std::vector<DistillationError> distillation_errors(Voicebox& student, Voicebox& teacher,
                                                   const Condition& condition, double guidance,
                                                   Draws& draws) {
  const at::NoGradGuard no_grad;
  const at::Tensor noise =
      sent_to(condition.context.device(), draws.normal("noise", condition.context.sizes()));
  at::Tensor counted = condition.hidden;
  if (condition.valid.defined()) counted = at::logical_and(counted, condition.valid);
  const auto made = [&](Voicebox& model, int64_t steps, double guided) {
    OdeConfig solver;
    solver.method = "euler";
    solver.steps = steps;
    return solve(guided_flow(model, condition, guided), model->draft(condition).around(noise), solver).x;
  };
  const at::Tensor right = made(teacher, kManySteps, guidance);
  const auto off = [&](const at::Tensor& x) { return row_means((x - right).abs().mean(-1), counted).mean(); };
  std::vector<DistillationError> errors;
  for (const int64_t steps : kFewSteps)
    errors.push_back({steps, off(made(student, steps, 1)), off(made(teacher, steps, guidance))});
  return errors;
}

}  // namespace melete::voicebox

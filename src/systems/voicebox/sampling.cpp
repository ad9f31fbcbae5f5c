#include "systems/voicebox/sampling.h"

#include <cmath>
#include <memory>

#include "generate/product_precision.h"
#include "nn/draws.h"
#include "nn/frozen.h"

namespace melete::voicebox {

void describe(Schema& s, FlowSampling& c) {
  s.section("solver", c.solver, "from noise to speech");
  s.option("guidance", c.guidance, "how far to go from the untold direction to the told one; 1: just that");
  s.option("temperature", c.temperature, "deviation of the noise at the start; below 1: less varied, clearer")
      .at_least(0)
      .at_most(2);
  s.option("precision", c.precision, kProductPrecision).one_of(product_precisions());
}

Flow guided_flow(Voicebox& model, const Condition& condition, double guidance) {
  const at::NoGradGuard no_grad;
  const int64_t rows = condition.context.size(0);
  const bool guided = guidance != 1;
  Condition all = condition;
  if (guided) {
    // Both answers in one batch: first the rows as they are, then the same ones told nothing.
    const auto twice = [](const at::Tensor& t) { return t.defined() ? at::cat({t, t}) : t; };
    all = {twice(all.context), twice(all.hidden), twice(all.tokens), twice(all.valid),
           at::arange(2 * rows, condition.context.options().dtype(at::kLong)) >= rows};
  }
  const auto prepared = std::make_shared<VoiceboxImpl::Prepared>(model->prepare(all));
  return [model, prepared, guided, guidance, rows](const at::Tensor& times, const at::Tensor& x) mutable {
    const at::NoGradGuard inner_no_grad;
    const at::Tensor flow = model->forward(x, times, *prepared);
    if (!guided) return flow;
    const at::Tensor told = flow.narrow(0, 0, rows), untold = flow.narrow(0, rows, rows);
    return untold + (told - untold) * guidance;
  };
}

Sampled sample(Voicebox& model, const Condition& condition, const FlowSampling& how, Draws& draws) {
  return sample(model, condition, how, draws.normal("noise", condition.context.sizes()));
}

Sampled sample(Voicebox& model, const Condition& given, const FlowSampling& how, const at::Tensor& noise) {
  const at::NoGradGuard no_grad;
  const at::Device device = device_of(*model);
  Condition condition = given;
  for (at::Tensor* part :
       {&condition.context, &condition.hidden, &condition.tokens, &condition.valid, &condition.dropped})
    if (part->defined()) *part = part->to(device);
  Sampled result;
  const at::Tensor start = model->draft(condition).around((noise * how.temperature).to(device));
  {
    const ProductPrecision rounded(how.precision, device.type());
    result.solution = solve(guided_flow(model, condition, how.guidance), start, how.solver);
  }
  result.frames = result.solution.x;
  if (condition.hidden.defined())
    result.frames = at::where(condition.hidden.unsqueeze(2), result.frames, condition.context);
  result.frames = result.frames.to(given.context.device());
  return result;
}

at::Tensor with_length(const at::Tensor& context, int64_t frames) {
  if (context.size(1) >= frames) return context.narrow(1, 0, frames);
  return at::constant_pad_nd(context, {0, 0, 0, frames - context.size(1)});
}

int64_t frames_of_tokens(int64_t tokens, double tokens_per_second, double frames_per_second) {
  return static_cast<int64_t>(std::ceil(static_cast<double>(tokens) / tokens_per_second * frames_per_second));
}

}  // namespace melete::voicebox

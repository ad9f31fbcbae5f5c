#include "generate/iterative_masking.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/base/error.h"
#include "core/device.h"
#include "generate/mask_schedule.h"

namespace melete {

namespace {

constexpr double kNeverMasked = -1e5;  // a doubt below all others

at::Tensor clamped_log(const at::Tensor& x) {
  return at::log(at::clamp_min(x, 1e-20));
}

// uniform: between 0 and 1
at::Tensor gumbel_noise(const at::Tensor& uniform) {
  return -clamped_log(-clamped_log(uniform));
}

// One for each of the logits
at::Tensor uniform_like(const at::Tensor& logits, std::string_view what, Draws& draws) {
  return sent_to(logits.device(), draws.uniform(what, logits.sizes()));
}

// A token for every position, from the most likely ones only. logits [rows, positions, tokens] -> [rows,
// positions]
at::Tensor sample_likely(const at::Tensor& logits, const IterativeMaskingConfig& config, double temperature,
                         Draws& draws) {
  const auto tokens = static_cast<double>(logits.size(-1));
  const auto kept = static_cast<int64_t>(std::ceil((1 - config.filter_threshold) * tokens));
  const int64_t count = std::clamp<int64_t>(config.top_k > 0 ? config.top_k : kept, 1, logits.size(-1));
  const auto [likely, which] = logits.topk(count, -1, /*largest=*/true, /*sorted=*/false);
  const at::Tensor noise = gumbel_noise(uniform_like(logits, "gumbel", draws).gather(-1, which));
  const at::Tensor best = (likely / std::max(temperature, 1e-10) + noise).argmax(-1, true);
  return which.gather(-1, best).squeeze(-1);
}

// The `count` [rows] most doubtful positions of every row. -> bool [rows, positions]
at::Tensor most_doubtful(const at::Tensor& doubts, const at::Tensor& count) {
  const int64_t most = count.max().item<int64_t>();
  at::Tensor chosen = at::zeros_like(doubts, doubts.options().dtype(at::kBool));
  if (most == 0) return chosen;
  const at::Tensor order = std::get<1>(doubts.topk(most, -1));
  const at::Tensor within = at::arange(most, count.options()).unsqueeze(0) < count.unsqueeze(1);
  return chosen.scatter_(1, order, within);
}

}  // namespace

void describe(Schema& s, IterativeMaskingConfig& c) {
  s.option("steps", c.steps, "rounds of prediction").at_least(1);
  s.option("schedule", c.schedule, "share of masked tokens as rounds go by").one_of(mask_schedule_names());
  s.option("temperature", c.temperature, "of sampled tokens at first; it falls to 0").at_least(0);
  s.option("filter_threshold", c.filter_threshold,
           "only the most likely tokens may be sampled, this much less than all of them")
      .at_least(0)
      .at_most(1);
  s.option("top_k", c.top_k, "only so many of the most likely tokens; 0: as filter_threshold says")
      .at_least(0);
  s.option("remask", c.remask, "tokens that stand already may be masked again, by their own probability");
  s.option("doubt_predictions", c.doubt_predictions,
           "muse-maskgit-pytorch's way: remasking looks at what was predicted in a token's place");
  s.option("use_critic", c.use_critic, "a critic says what is masked again, where the model has one");
  s.option("critic_noise", c.critic_noise, "added to its doubts at first; it falls to 0").at_least(0);
}

at::Tensor MaskedModel::doubts(const at::Tensor&) {
  fail("[decode] this model has no critic");
}

at::Tensor gumbel_sample(const at::Tensor& logits, double temperature, std::string_view what, Draws& draws) {
  return (logits / std::max(temperature, 1e-10) + gumbel_noise(uniform_like(logits, what, draws))).argmax(-1);
}

at::Tensor decode_masked(MaskedModel& model, const MaskingStart& start, const IterativeMaskingConfig& config,
                         Draws& draws, const MaskingObserver& observer) {
  const at::NoGradGuard no_grad;
  require(start.tokens.dim() == 2, "[decode] expected tokens [rows, positions], got [{}]",
          fmt::join(start.tokens.sizes(), ", "));
  at::Tensor tokens = start.tokens;
  const at::Tensor kept =
      start.kept.defined() ? start.kept : at::zeros_like(tokens, tokens.options().dtype(at::kBool));
  const at::Tensor maskable = kept.logical_not().sum(1).to(at::kFloat);  // [rows]
  at::Tensor doubts = start.time > 0 ? sent_to(tokens.device(), draws.uniform("first_masks", tokens.sizes()))
                                     : at::zeros_like(tokens, tokens.options().dtype(at::kFloat));
  const bool asks_critic = config.use_critic && model.has_critic();
  const at::Tensor times = at::linspace(start.time, 1, config.steps, at::kFloat);
  for (int64_t step = 0; step < config.steps; ++step) {
    const at::Tensor share = sent_to(tokens.device(), mask_share(config.schedule, times[step]));
    // At least one token a row, where there is one.
    const at::Tensor count = at::minimum((share * maskable).trunc().clamp_min(1), maskable).to(at::kLong);
    doubts = doubts.masked_fill(kept, -std::numeric_limits<double>::infinity());
    tokens = tokens.masked_fill(most_doubtful(doubts, count), model.mask_token());

    const at::Tensor logits = model.logits(tokens).to(at::kFloat);
    const double remaining = static_cast<double>(config.steps - 1 - step) / static_cast<double>(config.steps);
    const at::Tensor predicted = sample_likely(logits, config, config.temperature * remaining, draws);
    const at::Tensor input = tokens, masked = input == model.mask_token();
    tokens = at::where(masked, predicted, input);
    if (observer) observer({step, input, logits, predicted, tokens});
    if (step + 1 == config.steps) break;

    if (asks_critic) {
      const at::Tensor noise = sent_to(tokens.device(), draws.uniform("critic_noise", tokens.sizes())) - 0.5;
      doubts = model.doubts(tokens).to(at::kFloat) + noise * (config.critic_noise * remaining);
    } else {
      const at::Tensor& doubted = config.doubt_predictions ? predicted : tokens;
      const at::Tensor probability = at::softmax(logits, -1).gather(-1, doubted.unsqueeze(-1)).squeeze(-1);
      doubts = 1 - probability;
      if (!config.remask) doubts = doubts.masked_fill(masked.logical_not(), kNeverMasked);
    }
  }
  return tokens;
}

}  // namespace melete

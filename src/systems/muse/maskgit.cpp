#include "systems/muse/maskgit.h"

#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/device.h"
#include "generate/iterative_masking.h"

namespace melete::muse {

MaskGitConfig::MaskGitConfig() {
  critic_transformer.outputs = 1;
  critic_transformer.mask_token = false;
}

void describe(Schema& s, MaskGitConfig& c) {
  s.section("transformer", c.transformer, "fills in masked tokens");
  s.option("critic", c.critic, "who tells which tokens are wrong: nobody, the transformer, or one of its own")
      .one_of({"none", "self", "separate"});
  s.section("critic_transformer", c.critic_transformer, "of a separate critic");
  s.option("text_drop", c.text_drop, "share of pictures trained without their text").at_least(0).at_most(1);
  s.option("self_condition_share", c.self_condition_share, "of steps with self-conditioning")
      .at_least(0)
      .at_most(1);
  s.option("unmasked_share", c.unmasked_share, "of masked tokens that are shown and predicted all the same")
      .at_least(0)
      .at_most(1);
  s.option("critic_weight", c.critic_weight, "of the critic's loss").at_least(0);
  s.option("schedule", c.schedule, "share of masked tokens by time").one_of(mask_schedule_names());
}

MaskGitImpl::MaskGitImpl(const MaskGitConfig& config) : config_(config) {
  transformer = register_module("transformer", MaskGitTransformer(config.transformer));
  if (config.critic == "self")
    self_critic = register_module("self_critic", linear(config.transformer.dim, 1, true));
  if (config.critic != "separate") return;
  const MaskGitTransformerConfig& other = config.critic_transformer;
  require(other.tokens == config.transformer.tokens && other.positions >= config.transformer.positions,
          "[maskgit] a critic reads the same tokens: {} in {} positions, got {} in {}",
          config.transformer.tokens, config.transformer.positions, other.tokens, other.positions);
  critic = register_module("critic", MaskGitTransformer(other));
}

MaskedTokens MaskGitImpl::mask(const at::Tensor& tokens, Draws& draws) const {
  require(tokens.dim() == 2, "[maskgit] expected tokens [batch, positions], got [{}]",
          fmt::join(tokens.sizes(), ", "));
  const int64_t batch = tokens.size(0), positions = tokens.size(1);
  const at::Tensor time = draws.uniform("mask_time", {batch});
  const at::Tensor count =
      (static_cast<double>(positions) * mask_share(config_.schedule, time)).round().clamp_min(1);
  const at::Tensor order = draws.uniform("mask_order", {batch, positions}).argsort(-1, false);
  const at::Tensor asked = order < count.unsqueeze(1);

  MaskedTokens masked;
  at::Tensor hidden = asked;
  if (config_.unmasked_share > 0) {
    // Among the masked tokens of a row, those with the lowest draws are shown. Others stand before all of
    // them.
    const at::Tensor draw =
        draws.uniform("unmask_order", {batch, positions}).masked_fill(asked.logical_not(), -1);
    const at::Tensor rank = draw.argsort(-1, false).argsort(-1, false) - asked.logical_not().sum(-1, true);
    const at::Tensor shown = rank < asked.sum(-1, true) * config_.unmasked_share;
    hidden = asked.logical_and(shown.logical_not());
  }
  const at::Device device = tokens.device();
  const at::Tensor places = asked.flatten().nonzero().squeeze(1);
  masked.places = sent_to(device, places);
  masked.rows = sent_to(device, places.div(positions, "floor"));
  masked.hidden = sent_to(device, hidden);
  masked.labels = tokens.masked_fill(sent_to(device, asked.logical_not()), -1);
  masked.input = tokens.masked_fill(masked.hidden, transformer->mask_token());
  return masked;
}

// bool [batch]
at::Tensor MaskGitImpl::keep_text(const at::Tensor& like, Draws& draws, double text_drop) const {
  const int64_t batch = like.size(0);
  const at::TensorOptions options = like.options().dtype(at::kBool);
  if (text_drop == 0) return at::ones({batch}, options);
  if (text_drop == 1) return at::zeros({batch}, options);
  return sent_to(like.device(), draws.uniform("keep_text", {batch}) < 1 - text_drop);
}

MaskGitImpl::Losses MaskGitImpl::losses(const Batch& batch, Draws& draws, LossOptions how) {
  if (how.text_drop < 0) how.text_drop = config_.text_drop;
  Losses result;
  result.masked = mask(batch.tokens, draws);
  const MaskedTokens& masked = result.masked;
  const MaskGitContext whole = transformer->context(batch.text, batch.condition);
  if (config_.transformer.self_condition) {
    // One coin for all ranks, so that none waits for another's second pass.
    constexpr int64_t kFaces = 1 << 24;
    const double coin = static_cast<double>(draws.integer("self_condition", 0, kFaces)) / kFaces;
    if (coin < config_.self_condition_share) {
      const at::NoGradGuard no_grad;
      result.self_conditioned = transformer->embed(masked.input, whole);
    }
  }
  const at::Tensor embedded =
      transformer->embed(masked.input, whole.with_text_of(keep_text(batch.text, draws, how.text_drop)),
                         result.self_conditioned, masked.places);
  const at::Tensor wanted = masked.labels.flatten().index_select(0, masked.places);  // [asked]
  const at::Tensor logits = transformer->predict(embedded).to(at::kFloat);           // [asked, tokens]
  const at::Tensor each = at::cross_entropy_loss(logits, wanted, {}, at::Reduction::None, how.ignored_token);
  result.total = how.ignored_token < 0 ? each.mean() : each.sum() / wanted.ne(how.ignored_token).sum();
  const at::Tensor right = logits.detach().argmax(-1).eq(wanted).to(at::kFloat);
  result.named = {{"prediction", result.total.detach()}, {"accuracy", right.mean()}};
  result.asked = (masked.labels >= 0).sum(1).to(at::kFloat);
  const auto sum_by_picture = [&](const at::Tensor& of_tokens) {
    return at::zeros_like(result.asked).index_add_(0, masked.rows, of_tokens);
  };
  result.by_picture = sum_by_picture(each.detach()) / result.asked;
  result.right = sum_by_picture(right);
  if (!has_critic() || how.only_prediction) return result;

  if (how.temperature < 0) how.temperature = draws.uniform("critic_temperature", {1}).item<double>();
  const at::Tensor sampled = gumbel_sample(logits.detach(), how.temperature, "critic_tokens", draws);
  const at::Tensor filled =
      masked.input.flatten().index_copy(0, masked.places, sampled).view_as(masked.input);
  result.critic_input = at::where(masked.hidden, filled, masked.input);
  const MaskGitContext read = critic.is_empty() ? whole : critic->context(batch.text, batch.condition);
  const at::Tensor doubts =
      doubt(result.critic_input, read.with_text_of(keep_text(batch.text, draws, how.text_drop)))
          .to(at::kFloat);
  const at::Tensor wrong = result.critic_input.ne(batch.tokens).to(at::kFloat);
  const at::Tensor loss = at::binary_cross_entropy_with_logits(doubts, wrong);
  result.named.emplace_back("critic", loss.detach());
  result.named.emplace_back("critic_accuracy", (doubts.detach() > 0).eq(wrong > 0.5).to(at::kFloat).mean());
  result.total = result.total + config_.critic_weight * loss;
  return result;
}

at::Tensor MaskGitImpl::doubt_of(const at::Tensor& embedded) {
  require(has_critic(), "[maskgit] there is no critic to ask; set model.critic");
  return (critic.is_empty() ? project(embedded, self_critic) : critic->predict(embedded)).squeeze(-1);
}

at::Tensor MaskGitImpl::doubt(const at::Tensor& tokens, const MaskGitContext& context) {
  return doubt_of(critic_reader().embed(tokens, context));
}

}  // namespace melete::muse

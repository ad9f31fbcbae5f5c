#include "systems/spear_tts/losses.h"

#include <limits>

#include "config/schema.h"
#include "core/base/error.h"
#include "core/device.h"
#include "losses/token_loss.h"
#include "nn/draws.h"
#include "nn/frozen.h"

namespace melete::spear_tts {

void describe(Schema& s, AlignmentConfig& c) {
  s.option("weight", c.weight, "of the loss between similarities of sources and of targets; 0: off")
      .at_least(0);
  s.option("pooling", c.pooling, "how a sequence becomes one vector").one_of({"logsumexp", "max"});
  s.option("temperature", c.temperature, "of logsumexp; towards 0 it becomes max").at_least(1e-6);
}

void describe(Schema& s, LossConfig& c) {
  s.option("early_exit_weight", c.early_exit_weight, "of the early exit's loss").at_least(0);
  s.section("alignment", c.alignment, "what is alike shall be decoded to what is alike");
  s.option("as_upstream", c.as_upstream,
           "one coin drops a whole batch's sources, and only then is there an alignment loss");
}

namespace {

constexpr double kLittle = 1e-12;  // the least length of a vector that is divided by it

// values [batch, n, dim], seen bool [batch, n] -> [batch, dim]
at::Tensor pool(const at::Tensor& values, const at::Tensor& seen, const AlignmentConfig& config) {
  const at::Tensor shown =
      values.to(at::kFloat)
          .masked_fill(seen.logical_not().unsqueeze(2), -std::numeric_limits<float>::infinity());
  if (config.pooling == "max") return shown.amax(1);
  return (shown / config.temperature).logsumexp(1) * config.temperature;
}

// Cosines between all rows: [batch, batch]
at::Tensor similarities(const at::Tensor& rows) {
  const at::Tensor unit = rows / rows.norm(2, -1, true).clamp_min(kLittle);
  return at::mm(unit, unit.t());
}

// Which rows are decoded without their source: bool [batch] on the host; undefined when none can be
at::Tensor dropped_rows(int64_t batch, const LossConfig& config, const LossPass& pass) {
  if (pass.condition_drop <= 0) return {};
  require(pass.draws != nullptr, "[spear-tts] dropping sources needs draws");
  const at::Tensor coins = pass.draws->uniform("drop_condition", {config.as_upstream ? 1 : batch});
  return coins.lt(pass.condition_drop).expand({batch});
}

}  // namespace

at::Tensor alignment_loss(const at::Tensor& source, const at::Tensor& target) {
  const int64_t rows = source.size(0);
  if (rows < 2) return at::zeros({}, source.options());
  const at::Tensor self = at::eye(rows, source.options().dtype(at::kBool));
  const at::Tensor difference = (similarities(source) - similarities(target)).masked_fill(self, 0);
  return difference.square().sum() / (rows * (rows - 1));
}

PairLosses pair_losses(TextToSemantic& model, const Pair& pair, const LossConfig& config,
                       const LossPass& pass) {
  require(pair.source.size(0) == pair.target.size(0),
          "[spear-tts] expected as many sources as targets, got {} and {}", pair.source.size(0),
          pair.target.size(0));
  const auto [source_modality, target_modality] = pair.direction;
  Draws* const dropout = pass.training ? pass.draws : nullptr;
  const Context context = model->encode({pair.source, source_modality, pair.source_seen}, dropout);
  Context shown = context;
  const at::Tensor dropped = dropped_rows(pair.source.size(0), config, pass);
  if (dropped.defined())
    shown.seen = context.seen.logical_and(sent_to(pair.source.device(), dropped.logical_not()).unsqueeze(1));

  VocabularyImpl& tokens = model->vocabulary(target_modality);
  const at::Tensor target = tokens.with_end(pair.target), padding = tokens.is_padding(target);
  const at::Tensor seen =
      pair.target_seen.defined() ? pair.target_seen : at::constant_pad_nd(padding.logical_not(), {1, 0}, 1);
  const TransformerOutput output = model->decode(target, target_modality, shown, seen, dropout);
  // What follows the last token is nobody's target.
  const auto before_last = [&](const at::Tensor& values) { return values.narrow(1, 0, target.size(1)); };
  const at::Tensor labels = target.masked_fill(padding, -1);

  PairLosses result;
  result.logits = tokens.logits(before_last(output.values));
  const auto add = [&](const std::string& name, const TokenLoss& part) {
    result.named.emplace_back(name, part.loss.detach());
    result.named.emplace_back(name + "_accuracy", part.accuracy);
  };
  const TokenLoss loss = token_loss(result.logits, labels);
  result.total = loss.loss;
  add(std::string(name_of(target_modality)), loss);

  if (pass.early_exit) {
    require(
        output.early.defined(),
        "[spear-tts] an early exit's loss needs a model with early_exit_layer above 0 that writes speech");
    const at::Tensor stream = model->config().early_exit_detached ? output.early.detach() : output.early;
    const TokenLoss early = token_loss(model->early_exit(before_last(stream)), labels);
    result.total = result.total + early.loss * config.early_exit_weight;
    add("early_exit", early);
  }

  const bool other_side = source_modality != target_modality;
  const auto any_dropped = [&] { return dropped.defined() && dropped.any().item<bool>(); };
  if (pass.align && config.alignment.weight > 0 && other_side && (!config.as_upstream || any_dropped())) {
    const auto all_rows = [&](const at::Tensor& values, const at::Tensor& there) {
      const at::Tensor pooled = pool(values, there, config.alignment);
      return pass.gather ? pass.gather(pooled) : pooled;
    };
    const at::Tensor alignment =
        alignment_loss(all_rows(context.values, context.seen), all_rows(output.values, seen));
    result.total = result.total + alignment * config.alignment.weight;
    result.named.emplace_back("alignment", alignment.detach());
  }
  return result;
}

PairLosses pretraining_losses(TextToSemantic& model, const at::Tensor& speech, const DeletionConfig& deletion,
                              const LossConfig& config, const LossPass& pass) {
  require(pass.draws != nullptr, "[spear-tts] deleting tokens needs draws");
  const Damaged damaged = damage(speech, *model->speech, deletion, *pass.draws);
  const at::Device device = device_of(*model);
  return pair_losses(
      model, {sent_to(device, damaged.source), sent_to(device, damaged.target), kSpeechToSpeech, {}, {}},
      config, pass);
}

}  // namespace melete::spear_tts

#include "systems/audiolm/stage_losses.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "config/schema.h"
#include "core/base/error.h"
#include "core/device.h"
#include "nn/draws.h"
#include "nn/frozen.h"

namespace melete {

namespace {

struct PartLoss {
  at::Tensor loss, accuracy, count;
};

// logits [batch, n, classes], labels [batch, n] with -1 for padding
PartLoss part_loss(const at::Tensor& logits, const at::Tensor& labels) {
  PartLoss result;
  const at::Tensor flat = logits.flatten(0, 1).to(at::kFloat);
  const at::Tensor wanted = labels.flatten();
  result.loss = at::cross_entropy_loss(flat, wanted, {}, at::Reduction::Mean, kPadding);
  const at::NoGradGuard no_grad;
  const at::Tensor there = wanted.ne(kPadding);
  result.count = there.sum();
  result.accuracy = flat.argmax(-1).eq(wanted).logical_and(there).sum() / result.count.clamp_min(1);
  return result;
}

// Of logits that are all the same.
PartLoss guessed(const at::Tensor& logits) {
  return {
      at::scalar_tensor(std::log(static_cast<double>(logits.size(-1))), logits.options().dtype(at::kFloat)),
      {},
      {}};
}

StagePass pass_of(const StageInput& input, double condition_drop) {
  StagePass pass;
  pass.condition = input.condition;
  pass.condition_drop = input.condition_drop.value_or(input.forget ? condition_drop : 0);
  pass.draws = input.forget || input.condition_drop ? input.draws : nullptr;
  return pass;
}

at::Tensor hide_some(const StageInput& input, int64_t rows, int64_t length, double share) {
  if (!input.forget || share == 0) return {};
  require(input.draws != nullptr, "[stage] the forgetful mask needs draws");
  return forgetful_mask(rows, length, share, *input.draws);
}

void add(StageLosses& losses, const std::string& name, const PartLoss& part) {
  losses.named.emplace_back(name, part.loss.detach());
  losses.named.emplace_back(name + "_accuracy", part.accuracy);
}

at::Tensor counting(const StageInput& input, const at::Tensor& tokens) {
  return input.ignored ? tokens.masked_fill(tokens.eq(*input.ignored), kPadding) : tokens;
}

// All positions of a batch, padding included.
at::Tensor positions(const at::Tensor& labels) {
  return at::scalar_tensor(labels.numel(), labels.options().dtype(at::kFloat));
}

// The mean of two parts by their numbers of tokens, the first one weighted.
at::Tensor combine(const PartLoss& first, const at::Tensor& first_count, double weight,
                   const PartLoss& second, const at::Tensor& second_count) {
  return (first.loss * first_count * weight + second.loss * second_count) / (first_count + second_count);
}

}  // namespace

void describe(Schema& s, StageLossConfig& c) {
  s.option("unique_consecutive", c.unique_consecutive, "runs of one semantic token count once");
  s.option("forget", c.forget, "share of positions that training hides from attention")
      .at_least(0)
      .at_most(1);
  s.option("first_part_weight", c.first_part_weight,
           "weight of the loss on the semantic (coarse stage) or coarse (fine stage) part")
      .at_least(0);
}

at::Tensor tidy_tokens(const at::Tensor& ids, int64_t end, bool unique_consecutive, bool keep_padding) {
  const at::Tensor given = ids.to(at::kCPU).flatten(1).contiguous();
  const int64_t rows = given.size(0), columns = given.size(1);
  std::vector<std::vector<int64_t>> kept(static_cast<size_t>(rows));
  size_t longest = 0;
  for (int64_t row = 0; row < rows; ++row) {
    auto& tokens = kept[static_cast<size_t>(row)];
    const int64_t* from = given.data_ptr<int64_t>() + row * columns;
    for (int64_t i = 0; i < columns; ++i)
      if ((keep_padding || from[i] != kPadding) &&
          !(unique_consecutive && !tokens.empty() && tokens.back() == from[i]))
        tokens.push_back(from[i]);
    if (end >= 0 && !(unique_consecutive && !tokens.empty() && tokens.back() == end)) tokens.push_back(end);
    longest = std::max(longest, tokens.size());
  }
  at::Tensor result = at::full({rows, static_cast<int64_t>(longest)}, kPadding, at::kLong);
  for (int64_t row = 0; row < rows; ++row) {
    const auto& tokens = kept[static_cast<size_t>(row)];
    std::copy(tokens.begin(), tokens.end(), result.data_ptr<int64_t>() + row * result.size(1));
  }
  return sent_to(ids.device(), result);
}

at::Tensor forgetful_mask(int64_t rows, int64_t length, double share, Draws& draws) {
  at::Tensor order = draws.normal("forgetful_mask", {rows, length}).clone();
  order.select(1, 0).fill_(-std::numeric_limits<float>::max());
  const int64_t hidden = std::min(static_cast<int64_t>(static_cast<double>(length) * share), length - 1);
  const at::Tensor chosen = std::get<1>(order.topk(hidden, 1));
  return at::ones({rows, length}, at::kBool).scatter_(1, chosen, false);
}

StageLosses semantic_losses(SemanticTransformer& model, const StageInput& input,
                            const StageLossConfig& config) {
  const at::Tensor tokens =
      sent_to(device_of(*model), tidy_tokens(input.semantic, input.end ? model->end_id() : -1,
                                             config.unique_consecutive, input.keep_padding));
  const at::Tensor labels = counting(input, tokens);
  at::Tensor ids = tokens.narrow(1, 0, tokens.size(1) - 1);
  if (input.ignored) ids = ids.masked_fill(ids.eq(kPadding), *input.ignored);
  StagePass pass = pass_of(input, model->stage().condition_drop);
  // The start token is always seen; the mask never hides the first id.
  const at::Tensor seen = hide_some(input, ids.size(0), ids.size(1), config.forget);
  if (seen.defined()) pass.seen = sent_to(ids.device(), at::constant_pad_nd(seen, {1, 0}, 1));
  StageLosses result;
  result.logits = model(ids, pass);
  const PartLoss loss = part_loss(result.logits, labels);
  result.total = loss.loss;
  result.chance = guessed(result.logits).loss;
  result.named.emplace_back("accuracy", loss.accuracy);
  return result;
}

StageLosses coarse_losses(CoarseTransformer& model, const StageInput& input, const StageLossConfig& config) {
  const at::Device device = device_of(*model);
  const at::Tensor semantic_labels =
      counting(input, sent_to(device, tidy_tokens(input.semantic, input.end ? model->semantic_end_id() : -1,
                                                  config.unique_consecutive, input.keep_padding)));
  const at::Tensor codes =
      input.acoustic.dim() == 3 ? input.acoustic.narrow(2, 0, model->config().quantizers) : input.acoustic;
  const at::Tensor tokens =
      sent_to(device, tidy_tokens(codes, input.end ? model->end_id() : -1, false, input.keep_padding));
  const at::Tensor labels = counting(input, tokens), coarse = tokens.narrow(1, 0, tokens.size(1) - 1);

  // Padding and the end of the semantic part are not looked at.
  const at::Tensor there =
      semantic_labels.ne(kPadding).logical_and(semantic_labels.ne(model->semantic_end_id()));
  StagePass pass = pass_of(input, model->stage().condition_drop);
  pass.seen = at::constant_pad_nd(there, {1, coarse.size(1) + 1}, 1);
  const at::Tensor kept = hide_some(input, coarse.size(0), pass.seen.size(1), config.forget);
  if (kept.defined()) pass.seen = pass.seen.logical_and(sent_to(coarse.device(), kept));

  const CoarseLogits logits = model(semantic_labels.masked_fill(there.logical_not(), 0), coarse, pass);
  StageLosses result;
  result.first_logits = logits.semantic;
  result.logits = logits.coarse;
  const PartLoss loss = part_loss(logits.coarse, labels);
  result.total = loss.loss;
  result.chance = guessed(logits.coarse).loss;
  if (config.first_part_weight > 0 && logits.semantic.defined()) {
    const PartLoss first = part_loss(logits.semantic, semantic_labels);
    // audiolm-pytorch counts the padding of codes, and of tokens unless runs were made one.
    const at::Tensor first_count =
        input.keep_padding && !config.unique_consecutive ? positions(semantic_labels) : first.count;
    const at::Tensor second_count = input.keep_padding ? positions(labels) : loss.count;
    result.total = combine(first, first_count, config.first_part_weight, loss, second_count);
    result.chance = combine(guessed(logits.semantic), first_count, config.first_part_weight,
                            guessed(logits.coarse), second_count);
    add(result, "semantic", first);
  }
  add(result, "coarse", loss);
  return result;
}

StageLosses fine_losses(FineTransformer& model, const StageInput& input, const StageLossConfig& config) {
  const FineConfig& sizes = model->config();
  const bool apart = input.fine.defined();
  require(apart || (input.acoustic.dim() == 3 &&
                    input.acoustic.size(2) == sizes.coarse_quantizers + sizes.fine_quantizers),
          "[fine] expected codes of {} quantizers, got {}", sizes.coarse_quantizers + sizes.fine_quantizers,
          input.acoustic.size(-1));
  const at::Tensor codes = sent_to(device_of(*model), input.acoustic);
  const at::Tensor coarse = (apart ? codes : codes.narrow(2, 0, sizes.coarse_quantizers)).flatten(1);
  const at::Tensor tokens = (apart ? sent_to(codes.device(), input.fine)
                                   : codes.narrow(2, sizes.coarse_quantizers, sizes.fine_quantizers))
                                .flatten(1);
  const at::Tensor labels = counting(input, tokens), fine = tokens.narrow(1, 0, tokens.size(1) - 1);
  StagePass pass = pass_of(input, model->stage().condition_drop);
  const at::Tensor seen = hide_some(input, coarse.size(0), coarse.size(1) + fine.size(1) + 2, config.forget);
  if (seen.defined()) pass.seen = sent_to(coarse.device(), seen);

  const FineLogits logits = model(coarse, fine, pass);
  StageLosses result;
  result.first_logits = logits.coarse;
  result.logits = logits.fine;
  const PartLoss loss = part_loss(logits.fine, labels);
  result.total = loss.loss;
  result.chance = guessed(logits.fine).loss;
  if (config.first_part_weight > 0 && logits.coarse.defined()) {
    const PartLoss first = part_loss(logits.coarse, counting(input, coarse));
    result.total = combine(first, positions(coarse), config.first_part_weight, loss, positions(labels));
    result.chance = combine(guessed(logits.coarse), positions(coarse), config.first_part_weight,
                            guessed(logits.fine), positions(labels));
    add(result, "coarse", first);
  }
  add(result, "fine", loss);
  return result;
}

}  // namespace melete

#include "generate/beams.h"

#include <limits>

#include "config/schema.h"
#include "core/base/error.h"

namespace melete {

namespace {

constexpr float kOut = -std::numeric_limits<float>::infinity();

}  // namespace

void describe(Schema& s, BeamConfig& c) {
  s.option("beams", c.beams, "sequences that are followed at once").at_least(1);
  s.option("length_exponent", c.length_exponent,
           "ranked by log probability / length ^ this: above 0 favours long ones")
      .at_least(0);
  s.option("score_past_end", c.score_past_end, "ended sequences go on and count, as upstream does it");
}

Beams::Beams(int64_t items, const BeamConfig& config, int64_t end, const at::TensorOptions& options)
    : config_(config), items_(items), end_(end) {
  const auto of = [&](at::ScalarType type) { return options.dtype(type); };
  scores_ = at::full({items, config.beams}, kOut, of(at::kFloat));
  scores_.select(1, 0).fill_(0);  // there is one beginning
  lengths_ = at::zeros({items, config.beams}, of(at::kLong));
  ended_ = at::zeros({items, config.beams}, of(at::kBool));
  tokens_ = at::empty({items, config.beams, 0}, of(at::kLong));
  going_ = at::arange(items, of(at::kLong));
}

Beams::Step Beams::advance(const at::Tensor& log_probabilities) {
  const int64_t beams = config_.beams, classes = log_probabilities.size(-1);
  require(log_probabilities.size(0) == items_ * beams, "[beams] expected {} rows, got {}", items_ * beams,
          log_probabilities.size(0));
  at::Tensor follow = log_probabilities.to(at::kFloat).view({items_, beams, classes});
  at::Tensor grown = at::ones_like(lengths_);
  if (!config_.score_past_end && end_ >= 0) {
    // What has ended goes on in one way only, for nothing.
    at::Tensor nothing = at::full({classes}, kOut, follow.options());
    nothing[end_] = 0;
    follow = at::where(ended_.unsqueeze(2), nothing, follow);
    grown = ended_.logical_not().to(at::kLong);
  }
  const at::Tensor total = scores_.unsqueeze(2) + follow;  // [items, beams, classes]
  const at::Tensor lengths = lengths_ + grown;
  at::Tensor rank = total;
  if (config_.length_exponent > 0)
    rank = total / lengths.to(at::kFloat).pow(config_.length_exponent).unsqueeze(2);
  const at::Tensor chosen = std::get<1>(rank.flatten(1).topk(beams, 1));  // the best first
  const at::Tensor from = at::div(chosen, classes, "floor"), token = chosen - from * classes;

  scores_ = total.flatten(1).gather(1, chosen);
  lengths_ = lengths.gather(1, from);
  ended_ = ended_.gather(1, from);
  if (end_ >= 0) ended_ = ended_.logical_or(token.eq(end_));
  const at::Tensor kept = tokens_.gather(1, from.unsqueeze(2).expand({items_, beams, tokens_.size(2)}));
  tokens_ = at::cat({kept, token.unsqueeze(2)}, 2);
  look_for_ends();
  const at::Tensor first_row = at::arange(items_, from.options()).unsqueeze(1) * beams;
  return {(from + first_row).flatten(), token.flatten()};
}

void Beams::look_for_ends() {
  // Log probabilities only fall, so without a favour for length an ended best stays the best.
  const bool best_decides = !config_.score_past_end && config_.length_exponent == 0;
  const at::Tensor over = best_decides ? ended_.select(1, 0) : ended_.all(1);
  going_ = over.logical_not().nonzero().squeeze(1);
}

void Beams::keep(const at::Tensor& items) {
  items_ = items.size(0);
  for (at::Tensor* each : {&scores_, &lengths_, &ended_, &tokens_}) *each = each->index_select(0, items);
  look_for_ends();
}

at::Tensor Beams::best_tokens() const {
  return tokens_.select(1, 0);
}

at::Tensor Beams::best_score() const {
  return scores_.select(1, 0);
}

}  // namespace melete

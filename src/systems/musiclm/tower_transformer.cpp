#include "systems/musiclm/tower_transformer.h"

#include "config/schema.h"
#include "core/base/error.h"
#include "nn/attention.h"
#include "nn/draws.h"

namespace melete::musiclm {

namespace {

// Of products of unit vectors, which lie between -1 and 1.
constexpr double kScoreScale = 8;

}  // namespace

void describe(Schema& schema, TowerTransformerConfig& config) {
  schema.option("dim", config.dim, "width").at_least(1);
  schema.option("depth", config.depth, "layers").at_least(1);
  schema.option("heads", config.heads, "attention heads").at_least(1);
  schema.option("head_dim", config.head_dim, "width of a head").at_least(1);
  schema
      .option("feed_forward_multiplier", config.feed_forward_multiplier,
              "the inner width of a feed-forward layer is two thirds of this many times dim")
      .at_least(0);
  schema.option("attention_dropout", config.attention_dropout, "in training: share of attention weights")
      .at_least(0)
      .at_most(1);
  schema.option("feed_forward_dropout", config.feed_forward_dropout, "in training: share of inner values")
      .at_least(0)
      .at_most(1);
}

TowerAttentionImpl::TowerAttentionImpl(const TowerTransformerConfig& config) : config_(config) {
  const int64_t inner = config.heads * config.head_dim;
  norm = register_module("norm", Norm(config.dim, false));
  query = register_module("query", linear(config.dim, inner, false));
  key_value = register_module("key_value", linear(config.dim, 2 * inner, false));
  output = register_module("output", linear(inner, config.dim, false));
  query_scale = register_parameter("query_scale", at::ones({config.head_dim}));
  key_scale = register_parameter("key_scale", at::ones({config.head_dim}));
}

at::Tensor TowerAttentionImpl::forward(const at::Tensor& x, const TowerView& view, Draws* draws) {
  const at::Tensor normalised = norm(x);
  const auto heads = [&](const at::Tensor& t) { return t.unflatten(2, {config_.heads, config_.head_dim}); };
  // Unit vectors times sqrt(head_dim), which the scale of the scores takes back.
  const at::Tensor q = rms_norm(heads(project(normalised, query)), query_scale);
  const auto both = project(normalised, key_value).chunk(2, -1);
  const at::Tensor k = rms_norm(heads(both[0]), key_scale), v = heads(both[1]);

  AttentionOptions how;
  how.scale = kScoreScale / static_cast<double>(config_.head_dim);
  how.hidden = view.hidden;
  how.dropout = config_.attention_dropout;
  how.draws = draws;
  at::Tensor mixed;
  if (view.biases.size() <= 1) {
    if (!view.biases.empty()) how.bias = view.biases.front();
    mixed = attend(q, k, v, how);
  } else {
    // Split at once: on the way back the rows come together in one pass, where a slice of each row would
    // bring a whole batch of zeros to add.
    const auto queries = q.split(1), keys = k.split(1), values = v.split(1);
    std::vector<at::Tensor> rows;
    for (size_t row = 0; row < queries.size(); ++row) {
      how.bias = view.biases.at(row);
      how.hidden =
          view.hidden.defined() ? view.hidden.narrow(0, static_cast<int64_t>(row), 1) : at::Tensor();
      rows.push_back(attend(queries[row], keys[row], values[row], how));
    }
    mixed = at::cat(rows);
  }
  return dropout(project(mixed, output), config_.attention_dropout, draws);
}

TowerTransformerImpl::TowerTransformerImpl(const TowerTransformerConfig& config) : config_(config) {
  FeedForwardConfig inner;
  inner.dim = config.dim;
  inner.multiplier = config.feed_forward_multiplier;
  inner.shift = false;
  inner.dropout = config.feed_forward_dropout;
  for (int64_t i = 0; i < config.depth; ++i) {
    attention->push_back(TowerAttention(config));
    feed_forward->push_back(FeedForward(inner));
  }
  register_module("attention", attention);
  register_module("feed_forward", feed_forward);
}

std::vector<at::Tensor> TowerTransformerImpl::forward(at::Tensor x, const TowerView& view, Draws* draws) {
  std::vector<at::Tensor> layers;
  for (size_t i = 0; i < attention->size(); ++i) {
    x = x + attention->at<TowerAttentionImpl>(i).forward(x, view, draws);
    x = x + feed_forward->at<FeedForwardImpl>(i).forward(x, draws);
    layers.push_back(x);
  }
  return layers;
}

at::Tensor mean_of_seen(const at::Tensor& x, const at::Tensor& hidden) {
  if (!hidden.defined()) return x.mean(1);
  const at::Tensor seen = hidden.logical_not().unsqueeze(2).to(x.scalar_type());
  return (x * seen).sum(1) / seen.sum(1);
}

}  // namespace melete::musiclm

#include "nn/transformer.h"

#include <cmath>

#include "config/schema.h"
#include "core/base/error.h"
#include "nn/attention.h"

namespace melete {

namespace {

// False for every key that is seen; undefined when all are.
at::Tensor hidden_keys(const at::Tensor& seen, int64_t prefix, const at::Tensor& prefix_mask,
                       const at::Tensor& x, int64_t keys) {
  if (!seen.defined() && !prefix_mask.defined()) return {};
  const auto all = [&](int64_t count) { return at::ones({x.size(0), count}, x.options().dtype(at::kBool)); };
  at::Tensor visible = seen.defined() ? seen : all(keys);
  if (prefix > 0) visible = at::cat({prefix_mask.defined() ? prefix_mask : all(prefix), visible}, 1);
  return visible.logical_not();
}

}  // namespace

void describe(Schema& s, TransformerConfig& c) {
  s.option("dim", c.dim, "width of the residual stream").at_least(2);
  s.option("depth", c.depth, "layers").at_least(1);
  s.option("heads", c.heads, "query heads; they share one key and one value head").at_least(1);
  s.option("head_dim", c.head_dim, "width of a head").at_least(1);
  s.option("condition", c.condition, "how a text or audio embedding enters")
      .one_of({"none", "cross", "prefix"});
  s.option("attention_dropout", c.attention_dropout, "share of attention weights dropped in training")
      .at_least(0)
      .at_most(0.99);
  s.option("feed_forward_dropout", c.feed_forward_dropout, "share of hidden values dropped in training")
      .at_least(0)
      .at_most(0.99);
  s.option("gradient_shrink", c.gradient_shrink, "share of the gradient that reaches the embeddings")
      .at_least(0)
      .at_most(1);
}

TransformerCache::TransformerCache(const TransformerConfig& config, int64_t batch, int64_t capacity) {
  for (int64_t i = 0; i < config.depth; ++i) own.push_back(at::empty({batch, capacity, 2 * config.head_dim}));
  cross.resize(own.size());
}

AttentionImpl::AttentionImpl(const TransformerConfig& config, bool is_cross) : config_(config) {
  norm = register_module("norm", Norm(config.dim, false));
  if (is_cross) {
    context_norm = register_module("context_norm", Norm(config.dim, false));
    null_key_value = register_parameter("null_key_value", at::randn({2, 1, config.head_dim}));
  }
  query = register_module("query", linear(config.dim, config.heads * config.head_dim, false));
  key_value = register_module("key_value", linear(config.dim, 2 * config.head_dim, false));
  output = register_module("output", linear(config.heads * config.head_dim, config.dim, false));
}

// Keys and values see the stream as it is; only queries (and a context) are normalised.
at::Tensor AttentionImpl::keys_values(const at::Tensor& source) {
  if (context_norm.is_empty()) return project(source, key_value);
  const at::Tensor pairs = project(context_norm(source), key_value);
  const at::Tensor null = null_key_value.transpose(0, 1).reshape({1, 1, -1}).expand({pairs.size(0), 1, -1});
  return at::cat({null.to(pairs.scalar_type()), pairs}, 1);
}

at::Tensor AttentionImpl::forward(const at::Tensor& x, const at::Tensor& pairs, const at::Tensor& bias,
                                  const at::Tensor& hidden, Draws* draws) {
  const at::Tensor q = project(norm(x), query).view({x.size(0), x.size(1), config_.heads, config_.head_dim});
  AttentionOptions how;
  how.scale = 1 / std::sqrt(static_cast<double>(config_.head_dim));
  how.bias = bias;
  how.hidden = hidden;
  how.causal = config_.causal && context_norm.is_empty();
  how.dropout = config_.attention_dropout;
  how.draws = draws;
  const at::Tensor mixed = attend(q, pairs.narrow(2, 0, config_.head_dim),
                                  pairs.narrow(2, config_.head_dim, config_.head_dim), how);
  return dropout(project(mixed, output), config_.attention_dropout, draws);
}

TransformerImpl::TransformerImpl(const TransformerConfig& config) : config_(config) {
  FeedForwardConfig inner;
  inner.dim = config.dim;
  inner.shift = false;
  inner.inner_norm = true;
  inner.dropout = config.feed_forward_dropout;
  for (int64_t i = 0; i < config.depth; ++i) {
    attention->push_back(Attention(config, false));
    if (config.condition == "cross") cross->push_back(Attention(config, true));
    feed_forward->push_back(FeedForward(inner));
  }
  register_module("attention", attention);
  register_module("cross", cross);
  register_module("feed_forward", feed_forward);
  norm = register_module("norm", Norm(config.dim, false));
}

at::Tensor TransformerImpl::forward(at::Tensor x, const at::Tensor& bias, const at::Tensor& seen,
                                    const Context& context, Draws* draws, TransformerCache* cache) {
  const bool conditioned = config_.condition != "none";
  require(conditioned == context.values.defined(),
          "[transformer] its condition is `{}`, but {} context was given", config_.condition,
          context.values.defined() ? "a" : "no");
  const bool prefixed = config_.condition == "prefix";
  const int64_t prefix = prefixed ? context.values.size(1) : 0;
  const int64_t heads = config_.heads, n = x.size(1), keys = bias.size(2);
  at::Tensor scores = bias.size(1) == heads ? bias : bias.expand({n, heads, keys});
  if (prefix > 0) scores = at::constant_pad_nd(scores, {prefix, 0});
  const at::Tensor hidden = hidden_keys(seen, prefix, prefixed ? context.mask : at::Tensor(), x, keys);
  at::Tensor cross_hidden;
  if (!prefixed && context.mask.defined())
    cross_hidden = at::constant_pad_nd(context.mask.logical_not(), {1, 0}, 0);  // the learned key is seen

  if (at::GradMode::is_enabled())
    x = x * config_.gradient_shrink + x.detach() * (1 - config_.gradient_shrink);
  const int64_t before = cache ? cache->length : 0;
  for (size_t i = 0; i < attention->size(); ++i) {
    auto& own = attention->at<AttentionImpl>(i);
    at::Tensor pairs = own.keys_values(x);
    if (prefix > 0 && before == 0) pairs = at::cat({own.keys_values(context.values), pairs}, 1);
    if (cache) {
      require(before + pairs.size(1) <= cache->own[i].size(1),
              "[transformer] the cache holds {} positions, {} needed", cache->own[i].size(1),
              before + pairs.size(1));
      if (before == 0) cache->own[i] = cache->own[i].to(pairs.device());  // where the model turns out to be
      cache->own[i].narrow(1, before, pairs.size(1)).copy_(pairs);
      if (i + 1 == attention->size()) cache->length = before + pairs.size(1);
      pairs = cache->own[i].narrow(1, 0, before + pairs.size(1));
    }
    x = own.forward(x, pairs, scores, hidden, draws) + x;
    if (!cross->is_empty()) {
      auto& other = cross->at<AttentionImpl>(i);
      at::Tensor context_pairs = cache ? cache->cross[i] : at::Tensor();
      if (!context_pairs.defined()) context_pairs = other.keys_values(context.values);
      if (cache) cache->cross[i] = context_pairs;
      x = other.forward(x, context_pairs, {}, cross_hidden, draws) + x;
    }
    x = feed_forward->at<FeedForwardImpl>(i).forward(x, draws) + x;
  }
  return norm(x);
}

}  // namespace melete

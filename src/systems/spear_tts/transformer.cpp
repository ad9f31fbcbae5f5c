#include "systems/spear_tts/transformer.h"

#include <algorithm>
#include <cmath>

#include "core/base/error.h"
#include "nn/activation.h"
#include "nn/draws.h"
#include "nn/feed_forward.h"

namespace melete::spear_tts {

AttentionImpl::AttentionImpl(const TransformerConfig& config, bool cross)
    : heads_(config.heads),
      key_heads_(cross ? config.heads : config.key_heads),
      head_dim_(config.head_dim),
      dropout_(config.attention_dropout) {
  require(key_heads_ >= 1 && heads_ % key_heads_ == 0,
          "[spear-tts] expected key heads that divide the {} heads, got {}", heads_, key_heads_);
  norm = register_module("norm", RmsNorm(config.dim));
  query = register_module("query", linear(config.dim, heads_ * head_dim_, false));
  key_value = register_module("key_value", linear(config.dim, 2 * key_heads_ * head_dim_, false));
  output = register_module("output", linear(heads_ * head_dim_, config.dim, false));
  if (cross) null_key_value = register_parameter("null_key_value", at::randn({2, heads_, head_dim_}));
}

at::Tensor AttentionImpl::queries(const at::Tensor& normed) {
  return project(normed, query).view({normed.size(0), normed.size(1), heads_, head_dim_});
}

at::Tensor AttentionImpl::keys_values(const at::Tensor& source) {
  const int64_t batch = source.size(0);
  const at::Tensor pairs = project(source, key_value).view({batch, source.size(1), 2, key_heads_, head_dim_});
  if (!null_key_value.defined()) return pairs;
  const at::Tensor null = null_key_value.to(pairs.scalar_type());
  return at::cat({null.expand({batch, 1, 2, heads_, head_dim_}), pairs}, 1);
}

AttentionOptions AttentionImpl::options(Draws* draws) const {
  AttentionOptions how;
  how.scale = 1 / std::sqrt(static_cast<double>(head_dim_));
  how.dropout = dropout_;
  how.draws = draws;
  return how;
}

at::Tensor AttentionImpl::null_value() const {
  return null_key_value.select(0, 1).flatten();
}

FeedForwardImpl::FeedForwardImpl(int64_t dim, double multiplier, double dropout) : dropout_(dropout) {
  const auto inner = static_cast<int64_t>(static_cast<double>(dim) * multiplier * 2 / 3);
  require(inner >= 1, "[spear-tts] expected a feed-forward layer of at least one value, got {} times {}",
          multiplier, dim);
  norm = register_module("norm", RmsNorm(dim));
  input = register_module("input", linear(dim, 2 * inner, true));
  output = register_module("output", linear(inner, dim, true));
}

at::Tensor FeedForwardImpl::forward(const at::Tensor& x, Draws* draws) {
  return project(dropout(gated_gelu(project(norm(x), input), GateOrder::value_first), dropout_, draws),
                 output);
}

LayerImpl::LayerImpl(const TransformerConfig& config) {
  attention = register_module("attention", Attention(config, false));
  if (config.writes) cross = register_module("cross", Attention(config, true));
  feed_forward = register_module(
      "feed_forward", FeedForward(config.dim, config.feed_forward_multiplier, config.feed_forward_dropout));
}

void Cache::take_rows(const at::Tensor& parents, int64_t length) {
  const int64_t count = parents.size(0);
  at::Tensor from, positions;
  if (origins.defined()) {
    from = origins.narrow(1, 0, length).index_select(0, parents).to(at::kLong);
    positions = at::arange(length, from.options());
    origins = at::Tensor();
  }
  for (Layer& layer : layers) {
    const at::Tensor used = from.defined() ? layer.own.index({from, positions})
                                           : layer.own.narrow(1, 0, length).index_select(0, parents);
    if (count != layer.own.size(0)) layer.own = layer.own.narrow(0, 0, count);
    layer.own.narrow(1, 0, length).copy_(used);
  }
}

void Cache::branch(const at::Tensor& parents, int64_t length) {
  if (!origins.defined())
    origins = at::arange(rows(), at::kInt).unsqueeze(1).expand({rows(), capacity()}).contiguous();
  const at::Tensor used = origins.narrow(1, 0, length);
  used.copy_(used.index_select(0, parents));
}

void Cache::take_contexts(const at::Tensor& kept) {
  for (Layer& layer : layers) layer.cross = layer.cross.index_select(0, kept);
  context_hidden = context_hidden.index_select(0, kept);
}

TransformerImpl::TransformerImpl(const TransformerConfig& config) : config_(config) {
  for (int64_t i = 0; i < config.depth; ++i) layers->push_back(Layer(config));
  register_module("layers", layers);
  norm = register_module("norm", RmsNorm(config.dim));
  frequencies = register_buffer("frequencies", rotary_frequencies(config.head_dim));
}

Rotation TransformerImpl::rotation_of(int64_t positions) const {
  const at::Tensor numbers = at::arange(positions, frequencies.options());
  return rotation(numbers, frequencies, RotaryPairs::interleaved);
}

namespace {

// The learned key of cross attention is always seen.
at::Tensor hidden_context(const at::Tensor& seen) {
  return at::constant_pad_nd(seen.logical_not(), {1, 0}, 0);
}

}  // namespace

TransformerOutput TransformerImpl::forward(at::Tensor x, const at::Tensor& seen, const Context& context,
                                           Draws* draws, int64_t early_layer) {
  require(config_.writes == context.values.defined(), "[spear-tts] {}",
          config_.writes ? "the writer needs a context" : "the reader takes no context");
  const Rotation turn = rotation_of(x.size(1));
  const at::Tensor hidden = seen.defined() ? seen.logical_not() : at::Tensor();
  const at::Tensor cross_hidden = context.seen.defined() ? hidden_context(context.seen) : at::Tensor();
  TransformerOutput result;
  for (int64_t i = 0; i < config_.depth; ++i) {
    LayerImpl& part = layer(i);
    AttentionImpl& own = *part.attention;
    const at::Tensor normed = own.norm(x);
    const auto pair = own.keys_values(normed).unbind(2);  // one gradient for both, where select() makes two
    AttentionOptions how = own.options(draws);
    how.hidden = hidden;
    how.causal = config_.writes;
    x = x +
        project(attend(rotate(own.queries(normed), turn), rotate(pair[0], turn), pair[1], how), own.output);
    if (config_.writes) {
      AttentionImpl& cross = *part.cross;
      const auto others = cross.keys_values(context.values).unbind(2);
      AttentionOptions across = cross.options(draws);
      across.hidden = cross_hidden;
      x = x + project(attend(cross.queries(cross.norm(x)), others[0], others[1], across), cross.output);
    }
    x = x + part.feed_forward->forward(x, draws);
    if (i + 1 == early_layer) result.early = x;
  }
  result.values = norm(x);
  return result;
}

Cache TransformerImpl::make_cache(const Context& context, int64_t capacity, int64_t rows_per_context,
                                  bool unconditioned) {
  const at::NoGradGuard no_grad;
  const int64_t contexts = context.values.size(0);
  const int64_t rows = contexts * rows_per_context * (unconditioned ? 2 : 1);
  Cache cache;
  cache.rows_per_context = rows_per_context;
  cache.rotation = rotation_of(capacity);
  cache.context_hidden = hidden_context(context.seen);
  for (int64_t i = 0; i < config_.depth; ++i)
    cache.layers.push_back(
        {at::empty({rows, capacity, 2, config_.key_heads, config_.head_dim}, context.values.options()),
         layer(i).cross->keys_values(context.values)});
  return cache;
}

namespace {

Rotation part_of(const Rotation& all, int64_t first, int64_t count) {
  return {all.cosine.narrow(0, first, count), all.sine.narrow(0, first, count), all.pairs};
}

// Rows that are at the same position: their new keys and values go to the cache, and their queries look at
// all that is there. q [rows, n, heads, head_dim], pairs [rows, n, 2, key_heads, head_dim]
at::Tensor attend_cached(const at::Tensor& q, const at::Tensor& pairs, const at::Tensor& own, int64_t first,
                         const Rotation& all, AttentionOptions how) {
  const int64_t n = q.size(1);
  const Rotation turn = part_of(all, first, n);
  const at::Tensor place = own.narrow(1, first, n);
  place.select(2, 0).copy_(rotate(pairs.select(2, 0), turn));
  place.select(2, 1).copy_(pairs.select(2, 1));
  const at::Tensor past = own.narrow(1, 0, first + n);
  how.causal = true;
  return attend(rotate(q, turn), past.select(2, 0), past.select(2, 1), how);
}

// All queries of a context's rows are queries of one attention; unconditioned rows find the learned value.
at::Tensor attend_context(AttentionImpl& cross, const at::Tensor& x, const Cache::Layer& layer,
                          const Cache& cache) {
  const int64_t n = x.size(1), contexts = cache.contexts(), rows = contexts * cache.rows_per_context;
  const at::Tensor q = cross.queries(cross.norm(x.narrow(0, 0, rows)));
  AttentionOptions how = cross.options(nullptr);
  how.hidden = cache.context_hidden;
  at::Tensor found = attend(q.reshape({contexts, cache.rows_per_context * n, q.size(2), q.size(3)}),
                            layer.cross.select(2, 0), layer.cross.select(2, 1), how)
                         .view({rows, n, -1});
  const at::Tensor result = project(found, cross.output);
  if (rows == x.size(0)) return result;
  const at::Tensor nothing = project(cross.null_value().view({1, 1, -1}), cross.output);
  return at::cat({result, nothing.expand({x.size(0) - rows, n, -1})});
}

}  // namespace

at::Tensor TransformerImpl::run(at::Tensor x, const std::vector<int64_t>& first, LayerRange range,
                                Cache& cache) {
  const at::NoGradGuard no_grad;
  const int64_t rows = x.size(0), n = x.size(1);
  require(static_cast<int64_t>(first.size()) == rows && rows == cache.rows(),
          "[spear-tts] expected {} rows as in the cache, got {} with {} positions", cache.rows(), rows,
          first.size());
  const auto [least, most] = std::minmax_element(first.begin(), first.end());
  require(!cache.origins.defined(),
          "[spear-tts] expected every row's positions in its own place of the cache");
  require(*least >= 0 && *most + n <= cache.capacity(), "[spear-tts] the cache holds {} positions, {} needed",
          cache.capacity(), *most + n);
  const bool together = *least == *most;
  for (int64_t i = range.from; i < range.to; ++i) {
    LayerImpl& part = layer(i);
    AttentionImpl& own = *part.attention;
    const Cache::Layer& kept = cache.layers[static_cast<size_t>(i)];
    const at::Tensor normed = own.norm(x), q = own.queries(normed), pairs = own.keys_values(normed);
    const AttentionOptions how = own.options(nullptr);
    at::Tensor found;
    if (together) {
      found = attend_cached(q, pairs, kept.own, *least, cache.rotation, how);
    } else {
      std::vector<at::Tensor> by_row;
      for (int64_t row = 0; row < rows; ++row)
        by_row.push_back(attend_cached(q.narrow(0, row, 1), pairs.narrow(0, row, 1),
                                       kept.own.narrow(0, row, 1), first[static_cast<size_t>(row)],
                                       cache.rotation, how));
      found = at::cat(by_row);
    }
    x = x + project(found, own.output);
    x = x + attend_context(*part.cross, x, kept, cache);
    x = x + part.feed_forward->forward(x);
  }
  return x;
}

}  // namespace melete::spear_tts

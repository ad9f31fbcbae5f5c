#include "systems/muse/maskgit_transformer.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "core/base/error.h"
#include "nn/attention.h"
#include "systems/muse/picture_layers.h"

namespace melete::muse {

namespace {

constexpr double kAttentionScale = 8;  // of scores between unit vectors

FeedForward feed_forward_layer(int64_t dim, double multiplier) {
  FeedForwardConfig config;
  config.dim = dim;
  config.multiplier = multiplier;
  config.shift = false;
  config.inner_norm = true;
  return FeedForward(config);
}

}  // namespace

void describe(Schema& s, MaskGitTransformerConfig& c) {
  s.option("tokens", c.tokens, "different ones that a picture may have; 0: as the tokenizer has").at_least(0);
  s.option("positions", c.positions, "tokens of the largest picture; 0: as many as there are").at_least(0);
  s.option("dim", c.dim, "width").at_least(1);
  s.option("depth", c.depth, "layers").at_least(1);
  s.option("heads", c.heads, "attention heads").at_least(1);
  s.option("head_dim", c.head_dim, "width of a head").at_least(1);
  s.option("feed_forward_multiplier", c.feed_forward_multiplier,
           "the inner width is two thirds of so many times dim");
  s.option("text_dim", c.text_dim, "width of the text's features; 0: as the text encoder has").at_least(0);
  s.option("self_condition", c.self_condition, "it also sees its own last embedding");
  s.option(
       "condition_positions", c.condition_positions,
       "super-resolution: tokens of the largest smaller picture, which are then seen with their places; 0: "
       "as if they had none")
      .at_least(0);
  s.option("condition_doublings", c.condition_doublings,
           "super-resolution: how often the smaller picture's sides are doubled to be the picture's; its "
           "tokens are then added where they belong; 0: they are not")
      .at_least(0)
      .at_most(8);
  s.option("condition_columns", c.condition_columns, "tokens in a row of the smaller picture; filled in")
      .at_least(0);
}

MaskGitAttentionImpl::MaskGitAttentionImpl(const MaskGitTransformerConfig& config)
    : heads_(config.heads), head_dim_(config.head_dim) {
  const int64_t inner = heads_ * head_dim_;
  norm = register_module("norm", Norm(config.dim, false));
  query = register_module("query", linear(config.dim, inner, false));
  key_value = register_module("key_value", linear(config.dim, 2 * inner, false));
  output = register_module("output", linear(inner, config.dim, false));
  null_key_value = register_parameter("null_key_value", at::randn({2, heads_, head_dim_}));
  query_gain = register_parameter("query_gain", at::ones({head_dim_}));
  key_gain = register_parameter("key_gain", at::ones({head_dim_}));
}

MaskGitAttentionImpl::Memory MaskGitAttentionImpl::memory(const at::Tensor& source) {
  const int64_t batch = source.size(0), n = source.size(1);
  const auto both = project(source, key_value).view({batch, n, 2, heads_, head_dim_}).unbind(2);
  const auto with_null = [&](const at::Tensor& null, const at::Tensor& rest) {
    return at::cat({null.to(rest.scalar_type()).expand({batch, 1, heads_, head_dim_}), rest}, 1);
  };
  const at::Tensor null_key = rms_norm(null_key_value[0], key_gain);
  return {with_null(null_key, rms_norm(both[0], key_gain)), with_null(null_key_value[1], both[1])};
}

at::Tensor MaskGitAttentionImpl::attend_to(const at::Tensor& normed, const Memory& memory,
                                           const at::Tensor& hidden) {
  const at::Tensor q =
      rms_norm(project(normed, query).view({normed.size(0), normed.size(1), heads_, head_dim_}), query_gain);
  AttentionOptions how;
  // Of unit vectors times sqrt(head_dim), on both sides.
  how.scale = kAttentionScale / static_cast<double>(head_dim_);
  how.hidden = hidden;
  return project(attend(q, memory.keys, memory.values, how), output);
}

at::Tensor MaskGitAttentionImpl::forward(const at::Tensor& x) {
  const at::Tensor normed = norm(x);
  return attend_to(normed, memory(normed), {});
}

at::Tensor MaskGitAttentionImpl::forward(const at::Tensor& x, const Memory& memory,
                                         const at::Tensor& hidden) {
  return attend_to(norm(x), memory, hidden);
}

at::Tensor MaskGitAttentionImpl::forward_blind() {
  return project(null_key_value[1].flatten().unsqueeze(0), output).squeeze(0);
}

MaskGitContext MaskGitContext::with_text_of(const at::Tensor& kept) const {
  MaskGitContext result = *this;
  result.hidden = hidden.clone();
  result.hidden.narrow(1, 1, text_length).logical_or_(kept.logical_not().unsqueeze(1));
  return result;
}

MaskGitContext MaskGitContext::without_text() const {
  const bool only_text = hidden.size(1) == 1 + text_length;
  if (!only_text) return with_text_of(at::zeros({hidden.size(0)}, hidden.options()));
  MaskGitContext result;
  result.text_length = text_length;
  result.blind_rows = rows();
  result.hidden = hidden.narrow(0, 0, 0);
  for (const auto& layer : layers)
    result.layers.push_back({layer.keys.narrow(0, 0, 0), layer.values.narrow(0, 0, 0)});
  return result;
}

MaskGitContext MaskGitContext::followed_by(const MaskGitContext& other) const {
  require(blind_rows == 0, "[maskgit] rows that see nothing come last");
  const int64_t length = std::max(text_length, other.text_length);
  // Padding goes between the text and what follows it.
  const auto padded = [length](const at::Tensor& x, int64_t own, double filling) {
    if (own == length) return x;
    std::vector<int64_t> shape = x.sizes().vec();
    shape[1] = length - own;
    return at::cat({x.narrow(1, 0, 1 + own), at::full(shape, filling, x.options()),
                    x.narrow(1, 1 + own, x.size(1) - 1 - own)},
                   1);
  };
  const auto joined = [&](const at::Tensor& first, const at::Tensor& second, double filling) {
    return at::cat({padded(first, text_length, filling), padded(second, other.text_length, filling)});
  };
  MaskGitContext both;
  both.in_place = in_place;
  both.text_length = length;
  both.blind_rows = other.blind_rows;
  both.hidden = joined(hidden, other.hidden, 1);
  for (size_t i = 0; i < layers.size(); ++i)
    both.layers.push_back({joined(layers[i].keys, other.layers[i].keys, 0),
                           joined(layers[i].values, other.layers[i].values, 0)});
  return both;
}

MaskGitTransformerImpl::MaskGitTransformerImpl(const MaskGitTransformerConfig& config) : config_(config) {
  token_embedding = register_module(
      "token_embedding", torch::nn::Embedding(config.tokens + (config.mask_token ? 1 : 0), config.dim));
  position_embedding =
      register_module("position_embedding", torch::nn::Embedding(config.positions, config.dim));
  for (int64_t i = 0; i < config.depth; ++i) {
    attention->push_back(MaskGitAttention(config));
    cross_attention->push_back(MaskGitAttention(config));
    feed_forward->push_back(feed_forward_layer(config.dim, config.feed_forward_multiplier));
  }
  register_module("attention", attention);
  register_module("cross_attention", cross_attention);
  register_module("feed_forward", feed_forward);
  norm = register_module("norm", Norm(config.dim, false));
  logits = register_module("logits",
                           linear(config.dim, config.outputs > 0 ? config.outputs : config.tokens, false));
  if (config.text_dim != config.dim)
    text_projection = register_module("text_projection", linear(config.text_dim, config.dim, false));
  if (config.condition_positions > 0)
    condition_position_embedding = register_module(
        "condition_position_embedding", torch::nn::Embedding(config.condition_positions, config.dim));
  for (int64_t i = 0; i < config.condition_doublings; ++i)
    condition_doublings->push_back(Doubling(config.dim, config.dim));
  if (config.condition_doublings > 0) register_module("condition_doublings", condition_doublings);
  if (config.self_condition)
    self_condition = register_module("self_condition", feed_forward_layer(config.dim, 4));
}

MaskGitContext MaskGitTransformerImpl::context(const at::Tensor& text, const at::Tensor& condition) {
  require(text.dim() == 3 && text.size(2) == config_.text_dim,
          "[maskgit] expected text [batch, length, {}], got [{}]", config_.text_dim,
          fmt::join(text.sizes(), ", "));
  at::Tensor seen = text.ne(0).any(-1);  // [batch, length]
  at::Tensor source = text_projection.is_empty() ? text : project(text, text_projection);
  MaskGitContext result;
  if (condition.defined()) {
    at::Tensor smaller = token_embedding(condition);
    if (config_.condition_doublings > 0) result.in_place = in_place(smaller);
    if (config_.condition_positions > 0) {
      require(condition.size(1) <= config_.condition_positions,
              "[maskgit] {} tokens of a smaller picture do not fit into {} condition_positions",
              condition.size(1), config_.condition_positions);
      smaller = smaller + condition_position_embedding->weight.narrow(0, 0, condition.size(1));
    }
    source = at::cat({source, smaller.to(source.scalar_type())}, 1);
    seen = at::cat({seen, at::ones_like(condition, seen.options())}, 1);
  }
  result.text_length = text.size(1);
  result.hidden = at::cat({at::ones({seen.size(0), 1}, seen.options()), seen}, 1).logical_not();
  for (const auto& layer : *cross_attention)
    result.layers.push_back(layer->as<MaskGitAttentionImpl>()->memory(source));
  return result;
}

at::Tensor MaskGitTransformerImpl::in_place(const at::Tensor& smaller) {
  const int64_t columns = config_.condition_columns;
  require(columns > 0 && smaller.size(1) % columns == 0,
          "[maskgit] {} tokens of a smaller picture are no rows of {} (condition_columns)", smaller.size(1),
          columns);
  at::Tensor grid = smaller.transpose(1, 2).unflatten(2, {smaller.size(1) / columns, columns});
  for (const auto& doubling : *condition_doublings) grid = doubling->as<DoublingImpl>()->forward(grid);
  return grid.flatten(2).transpose(1, 2);
}

at::Tensor MaskGitTransformerImpl::embed(const at::Tensor& tokens, const MaskGitContext& context,
                                         const at::Tensor& before, const at::Tensor& places) {
  const int64_t positions = tokens.size(1);
  require(positions <= config_.positions, "[maskgit] {} tokens do not fit into {} positions", positions,
          config_.positions);
  at::Tensor x = token_embedding(tokens) + position_embedding->weight.narrow(0, 0, positions);
  if (context.in_place.defined()) {
    require(context.in_place.size(1) == positions,
            "[maskgit] the smaller picture covers {} places after condition_doublings, there are {}",
            context.in_place.size(1), positions);
    x = x + context.in_place;
  }
  // Of an embedding that is not there yet, zeros, the layer makes zeros.
  if (config_.self_condition && before.defined()) x = x + self_condition(before);
  for (size_t i = 0; i < context.layers.size(); ++i) {
    x = attention->at<MaskGitAttentionImpl>(i).forward(x) + x;
    // Rows that differ in their context alone have been the same until now.
    if (i == 0 && context.rows() > x.size(0)) x = x.repeat({context.rows() / x.size(0), 1, 1});
    x = read(i, x, context);
    if (i + 1 == context.layers.size() && places.defined()) x = x.flatten(0, 1).index_select(0, places);
    x = feed_forward->at<FeedForwardImpl>(i).forward(x) + x;
  }
  return norm(x);
}

// x and what cross attention adds to it
at::Tensor MaskGitTransformerImpl::read(size_t layer, const at::Tensor& x, const MaskGitContext& context) {
  auto& cross = cross_attention->at<MaskGitAttentionImpl>(layer);
  const int64_t seeing = context.hidden.size(0);
  const auto see = [&](const at::Tensor& rows) {
    return cross.forward(rows, context.layers[layer], context.hidden) + rows;
  };
  if (context.blind_rows == 0) return see(x);
  const at::Tensor blind = x.narrow(0, seeing, context.blind_rows) + cross.forward_blind();
  return seeing == 0 ? blind : at::cat({see(x.narrow(0, 0, seeing)), blind});
}

at::Tensor MaskGitTransformerImpl::predict(const at::Tensor& embedded) {
  return project(embedded, logits);
}

}  // namespace melete::muse

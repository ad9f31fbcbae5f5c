#include "nn/local_transformer.h"

#include <torch/nn/functional.h>

#include "kernels/softmax_rows.h"

namespace melete {

namespace {

constexpr double kScoreScale = 8;  // queries and keys have unit length, so scores need a scale of their own

at::Tensor unit_length(const at::Tensor& x) {
  return torch::nn::functional::normalize(x, torch::nn::functional::NormalizeFuncOptions().dim(-1));
}

// Every window beside the one before it: [rows, windows, window, dim] -> [rows, windows, 2 * window, dim].
at::Tensor with_previous_window(const at::Tensor& x) {
  const at::Tensor before = at::constant_pad_nd(x.narrow(1, 0, x.size(1) - 1), {0, 0, 0, 0, 1, 0});
  return at::cat({before, x}, 2);
}

at::Tensor rotate_half(const at::Tensor& x) {
  const auto halves = x.chunk(2, -1);
  return at::cat({-halves[1], halves[0]}, -1);
}

// Queries are the last ones of the keys; a distance counts the same both ways. -> [heads, queries, keys]
at::Tensor bias_both_ways(BiasNetwork& network, int64_t queries, int64_t keys) {
  const at::Tensor by_distance = bias_by_distance(network, keys);  // [keys, heads]
  const auto options = at::TensorOptions(at::kLong).device(by_distance.device());
  const at::Tensor query = at::arange(keys - queries, keys, options).unsqueeze(1);
  const at::Tensor key = at::arange(keys, options).unsqueeze(0);
  return by_distance.index({(query - key).abs()}).permute({2, 0, 1});
}

// A window's hidden keys and its bias differ from the next one's, which attend() of nn/attention.h has not.
// q [rows, windows, window, dim], k and v [rows, windows, 2 * window, dim]; bias (or undefined) and hidden
// broadcast to [rows, windows, window, 2 * window]
at::Tensor attend_windows(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          const at::Tensor& bias, const at::Tensor& hidden) {
  at::Tensor scores = at::matmul(q, k.transpose(-2, -1)).to(at::kFloat);
  if (bias.defined()) scores = scores + bias;
  return at::matmul(at::softmax(scores.masked_fill(hidden, kUnseen), -1).to(v.scalar_type()), v);
}

}  // namespace

LocalAttentionImpl::LocalAttentionImpl(const LocalTransformerConfig& config) : config_(config) {
  const int64_t inner = config.heads * config.head_dim;
  norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({config.dim})));
  query_scale = register_parameter("query_scale", at::ones({config.head_dim}));
  key_scale = register_parameter("key_scale", at::ones({config.head_dim}));
  qkv = register_module("qkv", linear(config.dim, 3 * inner, false));
  gate = register_module("gate", linear(config.dim, config.heads, true));
  output = register_module("output", linear(inner, config.dim, false));
}

void LocalAttentionImpl::rotate(at::Tensor& q, at::Tensor& k) const {
  const auto options = q.options().dtype(at::kFloat);
  const int64_t keys = k.size(-2), dim = config_.head_dim;
  const at::Tensor even = at::arange(0, dim, 2, options);
  const at::Tensor time = at::arange(keys, options);
  at::Tensor angle = at::outer(time, at::pow(10000, even / dim).reciprocal());
  angle = at::cat({angle, angle}, -1);  // [keys, head_dim]

  const double base =
      config_.xpos_scale_base > 0 ? config_.xpos_scale_base : static_cast<double>(config_.window / 2);
  const at::Tensor power = ((time - static_cast<double>(keys / 2)) / base).unsqueeze(1);
  at::Tensor decay = at::pow((even + 0.4 * dim) / (1.4 * dim), power);
  decay = at::cat({decay, decay}, -1);

  const at::Tensor cosine = angle.cos(), sine = angle.sin();
  k = (k * cosine + rotate_half(k) * sine) / decay;
  const auto newest = [&](const at::Tensor& t) { return t.narrow(0, keys - q.size(-2), q.size(-2)); };
  q = (q * newest(cosine) + rotate_half(q) * newest(sine)) * newest(decay);
}

at::Tensor LocalAttentionImpl::forward(const at::Tensor& x, const at::Tensor& bias) {
  const int64_t batch = x.size(0), frames = x.size(1), heads = config_.heads, window = config_.window;
  const int64_t windows = (frames + window - 1) / window;
  const at::Tensor normed = norm(x);

  // [batch, frames, 3 * heads * dim] -> three of [batch * heads, windows, window, dim]
  auto parts = qkv(normed).chunk(3, -1);
  for (size_t i = 0; i < parts.size(); ++i) {
    at::Tensor part = parts[i].view({batch, frames, heads, config_.head_dim}).transpose(1, 2).to(at::kFloat);
    if (i == 0) part = unit_length(part) * query_scale;
    if (i == 1) part = unit_length(part) * key_scale;
    parts[i] = at::constant_pad_nd(part, {0, 0, 0, windows * window - frames})
                   .reshape({batch * heads, windows, window, config_.head_dim});
  }
  at::Tensor q = parts[0] * kScoreScale, k = with_previous_window(parts[1]);
  const at::Tensor v = with_previous_window(parts[2]);
  if (!bias.defined()) rotate(q, k);

  // A query sees itself and at most `window` frames before it; before the first window there is nothing.
  const auto options = x.options().dtype(at::kLong);
  const at::Tensor query = at::arange(window, options).unsqueeze(1) + window;
  const at::Tensor key = at::arange(2 * window, options).unsqueeze(0);
  const at::Tensor first = (at::arange(windows, options) == 0).view({windows, 1, 1});
  const at::Tensor hidden = (key > query) | (query > key + window) | (first & (key < window));

  const at::Tensor head_bias = bias.defined() ? bias.repeat({batch, 1, 1}).unsqueeze(1) : bias;
  const at::Tensor seen = attend_windows(q, k, v, head_bias, hidden.unsqueeze(0))
                              .reshape({batch, heads, windows * window, config_.head_dim})
                              .narrow(2, 0, frames);
  const at::Tensor gates = at::sigmoid(gate(normed)).transpose(1, 2).unsqueeze(-1);
  return output((seen * gates).transpose(1, 2).reshape({batch, frames, heads * config_.head_dim}));
}

LocalTransformerImpl::LocalTransformerImpl(const LocalTransformerConfig& config) : window_(config.window) {
  if (config.dynamic_position_bias)
    position_bias = register_module("position_bias", BiasNetwork(1, config.dim / 2, config.heads, 2));
  for (int64_t i = 0; i < config.depth; ++i) {
    attention->push_back(LocalAttention(config));
    feed_forward->push_back(FeedForward(FeedForwardConfig{config.dim}));
  }
  register_module("attention", attention);
  register_module("feed_forward", feed_forward);
}

at::Tensor LocalTransformerImpl::forward(at::Tensor x) {
  const at::Tensor bias =
      position_bias.is_empty() ? at::Tensor() : bias_both_ways(position_bias, window_, 2 * window_);
  x = x.to(at::kFloat);  // norms and the residual stream stay in float32 whatever autocast says
  for (size_t i = 0; i < attention->size(); ++i) {
    x = attention->at<LocalAttentionImpl>(i).forward(x, bias) + x;
    x = feed_forward->at<FeedForwardImpl>(i).forward(x) + x;
  }
  return x;
}

}  // namespace melete

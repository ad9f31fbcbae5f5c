#include "systems/voicebox/transformer.h"

#include <cmath>

#include "core/base/error.h"
#include "core/device.h"
#include "nn/activation.h"
#include "nn/attention.h"
#include "nn/feed_forward.h"

namespace melete::voicebox {

namespace {

constexpr double kTheta = 50000;               // of the rotary positions
constexpr int64_t kRegisterPosition = -10000;  // far from every frame
constexpr double kNormedScale = 10;            // of scores between normalised queries and keys

}  // namespace

void describe(Schema& s, TransformerConfig& c) {
  s.option("dim", c.dim, "width of the residual stream").at_least(2);
  s.option("depth", c.depth, "layers").at_least(1);
  s.option("heads", c.heads, "of attention").at_least(1);
  s.option("head_dim", c.head_dim, "width of a head, even").at_least(2);
  s.option("feed_forward_multiplier", c.feed_forward_multiplier,
           "the inner width is two thirds of this many times dim")
      .at_least(0.1);
  s.option("attention_dropout", c.attention_dropout, "share of attention weights dropped in training")
      .at_least(0)
      .at_most(0.99);
  s.option("feed_forward_dropout", c.feed_forward_dropout, "share of hidden values dropped in training")
      .at_least(0)
      .at_most(0.99);
  s.option("register_tokens", c.register_tokens, "learned tokens before the frames").at_least(0);
  s.option("query_key_norm", c.query_key_norm, "normalise queries and keys");
  s.option("skip_connections", c.skip_connections, "from the first half of the layers to the second");
  s.option("skip_scale", c.skip_scale, "of what comes over them");
  s.option("gate_loops", c.gate_loops, "a linear recurrence before the attention of every layer");
}

SteeredNormImpl::SteeredNormImpl(int64_t dim, int64_t condition_dim) {
  if (condition_dim > 0)
    steered = register_module("steered", AdaptiveRmsNorm(dim, condition_dim));
  else
    plain = register_module("plain", RmsNorm(dim));
}

at::Tensor SteeredNormImpl::forward(const at::Tensor& x, const at::Tensor& condition) {
  return plain.is_empty() ? steered(x, condition) : plain(x);
}

AttentionImpl::AttentionImpl(const TransformerConfig& config) : config_(config) {
  const int64_t inner = config.heads * config.head_dim;
  query_key_value = register_module("query_key_value", linear(config.dim, 3 * inner, false));
  output = register_module("output", linear(inner, config.dim, false));
  if (!config.query_key_norm) return;
  query_norm = register_parameter("query_norm", at::ones({config.heads, config.head_dim}));
  key_norm = register_parameter("key_norm", at::ones({config.heads, config.head_dim}));
}

at::Tensor AttentionImpl::forward(const at::Tensor& x, const Rotation& positions, const at::Tensor& hidden,
                                  Draws* draws) {
  const auto parts = project(x, query_key_value)
                         .view({x.size(0), x.size(1), 3, config_.heads, config_.head_dim})
                         .unbind(2);  // [batch, n, heads, head_dim] each
  at::Tensor q = parts[0], k = parts[1];
  AttentionOptions how;
  how.scale = 1 / std::sqrt(static_cast<double>(config_.head_dim));
  if (query_norm.defined()) {
    q = rms_norm(q, query_norm);
    k = rms_norm(k, key_norm);
    how.scale = kNormedScale;
  }
  how.hidden = hidden;
  how.dropout = config_.attention_dropout;
  how.draws = draws;
  return project(attend(rotate(q, positions), rotate(k, positions), parts[2], how), output);
}

FeedForwardImpl::FeedForwardImpl(const TransformerConfig& config) : dropout_(config.feed_forward_dropout) {
  const auto inner =
      static_cast<int64_t>(static_cast<double>(config.dim) * config.feed_forward_multiplier * 2 / 3);
  input = register_module("input", linear(config.dim, 2 * inner, true));
  output = register_module("output", linear(inner, config.dim, true));
}

at::Tensor FeedForwardImpl::forward(const at::Tensor& x, Draws* draws) {
  return project(dropout(gated_gelu(project(x, input), GateOrder::value_first), dropout_, draws), output);
}

LayerImpl::LayerImpl(const TransformerConfig& config, bool has_skip) {
  if (has_skip) skip = register_module("skip", linear(2 * config.dim, config.dim, true));
  if (config.gate_loops) {
    GateLoopOptions options;
    options.output_norm = true;
    gate_loop = register_module("gate_loop", GateLoop(config.dim, options));
  }
  attention_norm = register_module("attention_norm", SteeredNorm(config.dim, config.condition_dim));
  attention = register_module("attention", Attention(config));
  feed_forward_norm = register_module("feed_forward_norm", SteeredNorm(config.dim, config.condition_dim));
  feed_forward = register_module("feed_forward", FeedForward(config));
}

TransformerImpl::TransformerImpl(const TransformerConfig& config) : config_(config) {
  require(!config.skip_connections || config.depth % 2 == 0,
          "[transformer] skip connections need an even depth, got {}", config.depth);
  if (config.register_tokens > 0)
    register_tokens = register_parameter("register_tokens", at::randn({config.register_tokens, config.dim}));
  for (int64_t i = 0; i < config.depth; ++i)
    layers->push_back(Layer(config, config.skip_connections && i >= config.depth / 2));
  register_module("layers", layers);
  norm = register_module("norm", RmsNorm(config.dim));
}

at::Tensor TransformerImpl::frequencies() const {
  return sent_to(norm->weight.device(), rotary_frequencies(config_.head_dim, kTheta));
}

Rotation TransformerImpl::positions(int64_t frames) const {
  const at::Tensor registers = at::full({config_.register_tokens}, kRegisterPosition, at::kLong);
  const at::Tensor all = sent_to(norm->weight.device(), at::cat({registers, at::arange(frames, at::kLong)}));
  return rotation(all, frequencies(), RotaryPairs::halves);
}

at::Tensor TransformerImpl::forward(at::Tensor x, const Rotation& positions, const at::Tensor& valid,
                                    const at::Tensor& condition, Draws* draws) {
  const int64_t registers = config_.register_tokens, frames = x.size(1);
  at::Tensor hidden;
  if (valid.defined()) hidden = at::constant_pad_nd(valid.logical_not(), {registers, 0}, 0);
  if (registers > 0) x = at::cat({register_tokens.expand({x.size(0), -1, -1}).to(x.scalar_type()), x}, 1);

  std::vector<at::Tensor> skips;  // inputs of the first half, the last of them on top
  for (const auto& module : *layers) {
    auto& layer = *module->as<LayerImpl>();
    if (!layer.skip.is_empty()) {
      x = project(at::cat({x, skips.back() * config_.skip_scale}, -1), layer.skip);
      skips.pop_back();
    } else if (config_.skip_connections) {
      skips.push_back(x);
    }
    if (!layer.gate_loop.is_empty()) x = layer.gate_loop(x) + x;
    x = layer.attention(layer.attention_norm(x, condition), positions, hidden, draws) + x;
    x = layer.feed_forward(layer.feed_forward_norm(x, condition), draws) + x;
  }
  return norm(x.narrow(1, registers, frames));
}

}  // namespace melete::voicebox

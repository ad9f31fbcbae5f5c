#include "systems/spear_tts/decoder_step.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/autocast.h"
#include "core/base/error.h"
#include "kernels/gated_gelu.h"
#include "kernels/one_position.h"
#include "kernels/rms_norm.h"

namespace melete::spear_tts {

// Positions that go through the layers together, "lines": those of a row stand one after the other.
struct DecoderStep::Work {
  int64_t lines, lines_per_row;
  std::vector<int64_t> positions;  // of each line
  at::Tensor x, normed, queries, pairs, mixed, scores;
};

namespace {

float* values_of(const at::Tensor& tensor) {
  return tensor.data_ptr<float>();
}

// As RowWeights::multiply, for any number of lines: a few at a time. x [lines, inputs] side by side
void multiply(const RowWeights& weights, const float* x, int64_t lines, const float* bias, float* y,
              int64_t y_step, bool add = false) {
  for (int64_t first = 0; first < lines; first += kFewRows)
    weights.multiply(x + first * weights.inputs(), std::min(kFewRows, lines - first), bias,
                     y + first * y_step, y_step, add);
}

void norm_rows(const at::Tensor& x, const at::Tensor& gain, const at::Tensor& y) {
  const int64_t n = gain.size(0);
  for (int64_t row = 0; row < x.size(0); ++row)
    rms_norm_row(values_of(x) + row * n, values_of(gain), values_of(y) + row * n, n);
}

// Heads [heads, dim] turned in place, dimension 2 i with 2 i + 1; cosine and sine [dim / 2].
void turn(float* heads, int64_t count, int64_t dim, const float* cosine, const float* sine) {
  for (int64_t head = 0; head < count; ++head)
    for (int64_t i = 0; i < dim / 2; ++i) {
      float* const pair = heads + head * dim + 2 * i;
      const float one = pair[0], other = pair[1];
      pair[0] = one * cosine[i] - other * sine[i];
      pair[1] = other * cosine[i] + one * sine[i];
    }
}

PositionAttention attention_of(const TransformerConfig& config, int64_t key_heads, const at::Tensor& kept) {
  PositionAttention attention;
  attention.step = kept.stride(1);
  attention.row_step = kept.stride(0);
  attention.heads = config.heads;
  attention.kv_heads = key_heads;
  attention.dim = config.head_dim;
  attention.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(config.head_dim)));
  return attention;
}

}  // namespace

FeedForwardStep::FeedForwardStep(FeedForwardImpl& part, WeightStorage storage)
    : input_(part.input->weight, storage),
      output_(part.output->weight, storage),
      norm_(part.norm->weight.detach()),
      input_bias_(part.input->bias.detach()),
      output_bias_(part.output->bias.detach()) {}

void FeedForwardStep::add_to(const at::Tensor& x) const {
  const int64_t rows = x.size(0), inner = output_.inputs();
  const at::Tensor normed = at::empty_like(x), wide = at::empty({rows, 2 * inner}, x.options()),
                   narrow = at::empty({rows, inner}, x.options());
  norm_rows(x, norm_, normed);
  multiply(input_, values_of(normed), rows, values_of(input_bias_), values_of(wide), 2 * inner);
  for (int64_t row = 0; row < rows; ++row)
    gated_gelu_row(values_of(wide) + row * 2 * inner, values_of(narrow) + row * inner, inner,
                   GateOrder::value_first);
  multiply(output_, values_of(narrow), rows, values_of(output_bias_), values_of(x), x.size(1), true);
}

bool DecoderStep::fits(TransformerImpl& writer) {
  const at::Tensor& weight = writer.norm->weight;
  return weight.device().is_cpu() && weight.scalar_type() == at::kFloat &&
         autocast_type(at::kCPU, at::kFloat) == at::kFloat;
}

DecoderStep::DecoderStep(TransformerImpl& writer, WeightStorage storage) : config_(writer.config()) {
  const at::NoGradGuard no_grad;
  require(config_.writes, "[spear-tts] a reader has no steps");
  const auto packed = [&](const torch::nn::Linear& linear) { return RowWeights(linear->weight, storage); };
  for (int64_t i = 0; i < config_.depth; ++i) {
    LayerImpl& part = writer.layer(i);
    layers_.push_back({packed(part.attention->query), packed(part.attention->key_value),
                       packed(part.attention->output), packed(part.cross->query), packed(part.cross->output),
                       part.attention->norm->weight.detach(), part.cross->norm->weight.detach(),
                       part.cross->null_value().detach().contiguous(),
                       FeedForwardStep(*part.feed_forward, storage)});
  }
}

// Adds what each line finds among the positions before it, and at its own, to the stream.
void DecoderStep::attend_own(const Layer& layer, const Cache::Layer& kept, const Cache& cache,
                             Work& w) const {
  const int64_t width = config_.heads * config_.head_dim, keys = config_.key_heads * config_.head_dim;
  norm_rows(w.x, layer.norm, w.normed);
  multiply(layer.query, values_of(w.normed), w.lines, nullptr, values_of(w.queries), width);
  multiply(layer.key_value, values_of(w.normed), w.lines, nullptr, values_of(w.pairs), 2 * keys);
  for (int64_t line = 0; line < w.lines; ++line) {
    const int64_t position = w.positions[static_cast<size_t>(line)];
    const float* const cosine = values_of(cache.rotation.cosine) + position * cache.rotation.cosine.stride(0);
    const float* const sine = values_of(cache.rotation.sine) + position * cache.rotation.sine.stride(0);
    float* const pair = values_of(w.pairs) + line * 2 * keys;
    turn(values_of(w.queries) + line * width, config_.heads, config_.head_dim, cosine, sine);
    turn(pair, config_.key_heads, config_.head_dim, cosine, sine);
    std::memcpy(
        values_of(kept.own) + line / w.lines_per_row * kept.own.stride(0) + position * kept.own.stride(1),
        pair, static_cast<size_t>(2 * keys) * sizeof(float));
  }
  PositionAttention attention = attention_of(config_, config_.key_heads, kept.own);
  for (int64_t line = 0; line < w.lines; ++line) {
    const int64_t row = line / w.lines_per_row;
    attention.query = values_of(w.queries) + line * width;
    attention.first_key = values_of(kept.own) + (cache.origins.defined() ? 0 : row * kept.own.stride(0));
    if (cache.origins.defined())
      attention.rows = cache.origins.data_ptr<int32_t>() + row * cache.origins.stride(0);
    attention.first_value = attention.first_key + keys;
    attention.keys = w.positions[static_cast<size_t>(line)] + 1;
    attend_position(attention, values_of(w.scores), values_of(w.mixed) + line * width);
  }
  multiply(layer.output, values_of(w.mixed), w.lines, nullptr, values_of(w.x), config_.dim, true);
}

// The same for what was read, once for all rows of a context; those without one find the learned value.
void DecoderStep::attend_context(const Layer& layer, const Cache::Layer& kept, const Cache& cache,
                                 Work& w) const {
  const int64_t width = config_.heads * config_.head_dim;
  norm_rows(w.x, layer.cross_norm, w.normed);
  multiply(layer.cross_query, values_of(w.normed), w.lines, nullptr, values_of(w.queries), width);
  PositionAttention attention = attention_of(config_, config_.heads, kept.cross);
  attention.keys = kept.cross.size(1);
  attention.queries = cache.rows_per_context * w.lines_per_row;
  const auto* const hidden = reinterpret_cast<const uint8_t*>(cache.context_hidden.data_ptr<bool>());
  int64_t line = 0;
  for (int64_t context = 0; context < cache.contexts(); ++context, line += attention.queries) {
    attention.query = values_of(w.queries) + line * width;
    attention.first_key = values_of(kept.cross) + context * kept.cross.stride(0);
    attention.first_value = attention.first_key + width;
    attention.hidden = hidden + context * cache.context_hidden.stride(0);
    attend_position(attention, values_of(w.scores), values_of(w.mixed) + line * width);
  }
  for (; line < w.lines; ++line)
    std::memcpy(values_of(w.mixed) + line * width, values_of(layer.null_value),
                static_cast<size_t>(width) * sizeof(float));
  multiply(layer.cross_output, values_of(w.mixed), w.lines, nullptr, values_of(w.x), config_.dim, true);
}

at::Tensor DecoderStep::forward(const at::Tensor& x, const std::vector<int64_t>& first, LayerRange range,
                                Cache& cache) {
  const at::NoGradGuard no_grad;
  const int64_t rows = x.size(0), n = x.size(1), lines = rows * n;
  const int64_t last = *std::max_element(first.begin(), first.end()) + n;
  require(static_cast<int64_t>(first.size()) == rows && rows == cache.rows() && last <= cache.capacity(),
          "[spear-tts] expected positions below {} for each of {} rows, got {} for {} rows", cache.capacity(),
          cache.rows(), last, rows);
  require(cache.context_hidden.is_contiguous(), "[spear-tts] expected the contexts' masks side by side");
  const int64_t width = config_.heads * config_.head_dim;
  const int64_t scores = std::max(last, cache.rows_per_context * n * cache.layers.front().cross.size(1));
  const auto room = [&](int64_t count) { return at::empty({lines, count}, x.options()); };
  Work w{lines,
         n,
         {},
         x.reshape({lines, config_.dim}).clone(at::MemoryFormat::Contiguous),
         room(config_.dim),
         room(width),
         room(2 * config_.key_heads * config_.head_dim),
         room(width),
         at::empty({config_.heads * scores}, x.options())};
  for (const int64_t position : first)
    for (int64_t i = 0; i < n; ++i) w.positions.push_back(position + i);
  for (int64_t i = range.from; i < range.to; ++i) {
    const Layer& layer = layers_[static_cast<size_t>(i)];
    const Cache::Layer& kept = cache.layers[static_cast<size_t>(i)];
    attend_own(layer, kept, cache, w);
    attend_context(layer, kept, cache, w);
    layer.feed_forward.add_to(w.x);
  }
  return w.x.view(x.sizes());
}

EarlyExitStep::EarlyExitStep(EarlyExitImpl& exit, WeightStorage storage)
    : feed_forward_(*exit.feed_forward, storage),
      norm_(exit.norm->weight.detach()),
      output_(exit.output->weight, storage) {}

at::Tensor EarlyExitStep::operator()(const at::Tensor& stream) const {
  const at::Tensor x = stream.clone(at::MemoryFormat::Contiguous), normed = at::empty_like(x);
  feed_forward_.add_to(x);
  norm_rows(x, norm_, normed);
  const at::Tensor logits = at::empty({x.size(0), output_.outputs()}, x.options());
  multiply(output_, values_of(normed), x.size(0), nullptr, values_of(logits), output_.outputs());
  return logits;
}

}  // namespace melete::spear_tts

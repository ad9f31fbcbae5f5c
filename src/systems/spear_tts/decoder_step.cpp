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

struct DecoderStep::Buffers {
  int64_t rows;
  at::Tensor x, normed, queries, pairs, mixed, wide, inner, scores;
};

namespace {

float* values_of(const at::Tensor& tensor) {
  return tensor.data_ptr<float>();
}

// y = x / |x| * sqrt(n) * gain, for every row.
void rms_rows(const at::Tensor& x, const at::Tensor& gain, const at::Tensor& y) {
  const int64_t n = gain.size(0);
  const float* const by = values_of(gain);
  for (int64_t row = 0; row < x.size(0); ++row) {
    const float* const from = values_of(x) + row * n;
    float* const to = values_of(y) + row * n;
    float square = 0;
    for (int64_t i = 0; i < n; ++i) square += from[i] * from[i];
    const float scale =
        std::sqrt(static_cast<float>(n)) / std::max(std::sqrt(square), static_cast<float>(kShortestRow));
    for (int64_t i = 0; i < n; ++i) to[i] = from[i] * scale * by[i];
  }
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

}  // namespace

bool DecoderStep::fits(TransformerImpl& writer, int64_t rows) {
  const at::Tensor& weight = writer.norm->weight;
  return rows <= kFewRows && weight.device().is_cpu() && weight.scalar_type() == at::kFloat &&
         autocast_type(at::kCPU, at::kFloat) == at::kFloat;
}

DecoderStep::DecoderStep(TransformerImpl& writer, WeightStorage storage) : config_(writer.config()) {
  const at::NoGradGuard no_grad;
  require(config_.writes, "[spear-tts] a reader has no steps");
  const auto packed = [&](const torch::nn::Linear& linear) { return RowWeights(linear->weight, storage); };
  for (int64_t i = 0; i < config_.depth; ++i) {
    LayerImpl& part = writer.layer(i);
    Layer layer;
    layer.query = packed(part.attention->query);
    layer.key_value = packed(part.attention->key_value);
    layer.output = packed(part.attention->output);
    layer.cross_query = packed(part.cross->query);
    layer.cross_output = packed(part.cross->output);
    layer.input = packed(part.feed_forward->input);
    layer.feed_output = packed(part.feed_forward->output);
    layer.norm = part.attention->norm->weight.detach();
    layer.cross_norm = part.cross->norm->weight.detach();
    layer.feed_norm = part.feed_forward->norm->weight.detach();
    layer.input_bias = part.feed_forward->input->bias.detach();
    layer.feed_bias = part.feed_forward->output->bias.detach();
    layer.null_value = part.cross->null_value().detach().contiguous();
    layers_.push_back(std::move(layer));
  }
}

// Adds what the new position finds among those before it, and itself, to the stream.
void DecoderStep::attend_own(const Layer& layer, const Cache::Layer& kept,
                             const std::vector<int64_t>& positions, const Rotation& rotation,
                             Buffers& b) const {
  const int64_t width = config_.heads * config_.head_dim, keys = config_.key_heads * config_.head_dim;
  rms_rows(b.x, layer.norm, b.normed);
  layer.query.multiply(values_of(b.normed), b.rows, nullptr, values_of(b.queries), width);
  layer.key_value.multiply(values_of(b.normed), b.rows, nullptr, values_of(b.pairs), 2 * keys);
  PositionAttention attention;
  attention.step = kept.own.stride(1);
  attention.heads = config_.heads;
  attention.kv_heads = config_.key_heads;
  attention.dim = config_.head_dim;
  attention.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(config_.head_dim)));
  for (int64_t row = 0; row < b.rows; ++row) {
    const int64_t position = positions[static_cast<size_t>(row)];
    const float* const cosine = values_of(rotation.cosine) + position * rotation.cosine.stride(0);
    const float* const sine = values_of(rotation.sine) + position * rotation.sine.stride(0);
    float* const query = values_of(b.queries) + row * width;
    float* const pair = values_of(b.pairs) + row * 2 * keys;
    turn(query, config_.heads, config_.head_dim, cosine, sine);
    turn(pair, config_.key_heads, config_.head_dim, cosine, sine);
    float* const first = values_of(kept.own) + row * kept.own.stride(0);
    std::memcpy(first + position * kept.own.stride(1), pair, static_cast<size_t>(2 * keys) * sizeof(float));
    attention.query = query;
    attention.first_key = first;
    attention.first_value = first + keys;
    attention.keys = position + 1;
    attend_position(attention, values_of(b.scores), values_of(b.mixed) + row * width);
  }
  layer.output.multiply(values_of(b.mixed), b.rows, nullptr, values_of(b.x), config_.dim, true);
}

// The same for what was read; rows without a context find the learned value.
void DecoderStep::attend_context(const Layer& layer, const Cache::Layer& kept, const Cache& cache,
                                 Buffers& b) const {
  const int64_t width = config_.heads * config_.head_dim;
  rms_rows(b.x, layer.cross_norm, b.normed);
  layer.cross_query.multiply(values_of(b.normed), b.rows, nullptr, values_of(b.queries), width);
  PositionAttention attention;
  attention.step = kept.cross.stride(1);
  attention.heads = attention.kv_heads = config_.heads;
  attention.dim = config_.head_dim;
  attention.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(config_.head_dim)));
  attention.keys = kept.cross.size(1);
  const auto* const hidden = reinterpret_cast<const uint8_t*>(cache.context_hidden.data_ptr<bool>());
  const int64_t conditioned = cache.contexts() * cache.rows_per_context;
  for (int64_t row = 0; row < b.rows; ++row) {
    float* const found = values_of(b.mixed) + row * width;
    if (row >= conditioned) {
      std::memcpy(found, values_of(layer.null_value), static_cast<size_t>(width) * sizeof(float));
      continue;
    }
    const int64_t context = row / cache.rows_per_context;
    attention.query = values_of(b.queries) + row * width;
    attention.first_key = values_of(kept.cross) + context * kept.cross.stride(0);
    attention.first_value = attention.first_key + width;
    attention.hidden = hidden + context * cache.context_hidden.stride(0);
    attend_position(attention, values_of(b.scores), found);
  }
  layer.cross_output.multiply(values_of(b.mixed), b.rows, nullptr, values_of(b.x), config_.dim, true);
}

void DecoderStep::feed_forward(const Layer& layer, Buffers& b) const {
  const int64_t inner = layer.feed_output.inputs();
  rms_rows(b.x, layer.feed_norm, b.normed);
  layer.input.multiply(values_of(b.normed), b.rows, values_of(layer.input_bias), values_of(b.wide),
                       2 * inner);
  for (int64_t row = 0; row < b.rows; ++row)
    gated_gelu_row(values_of(b.wide) + row * 2 * inner, values_of(b.inner) + row * inner, inner,
                   GateOrder::value_first);
  layer.feed_output.multiply(values_of(b.inner), b.rows, values_of(layer.feed_bias), values_of(b.x),
                             config_.dim, true);
}

at::Tensor DecoderStep::forward(const at::Tensor& x, const std::vector<int64_t>& positions, LayerRange range,
                                Cache& cache) {
  const at::NoGradGuard no_grad;
  const int64_t rows = x.size(0), width = config_.heads * config_.head_dim;
  const int64_t last = *std::max_element(positions.begin(), positions.end());
  require(static_cast<int64_t>(positions.size()) == rows && rows == cache.rows() && last < cache.capacity(),
          "[spear-tts] expected a position below {} for each of {} rows, got {} for {} rows",
          cache.capacity(), cache.rows(), last, rows);
  require(cache.context_hidden.is_contiguous(), "[spear-tts] expected the contexts' masks side by side");
  const int64_t most = std::max(last + 1, cache.layers.front().cross.size(1));
  const int64_t inner = layers_.front().feed_output.inputs();
  const auto room = [&](int64_t count) { return at::empty({rows, count}, x.options()); };
  Buffers b{rows,
            x.clone(at::MemoryFormat::Contiguous),
            room(config_.dim),
            room(width),
            room(2 * config_.key_heads * config_.head_dim),
            room(width),
            room(2 * inner),
            room(inner),
            at::empty({config_.heads, most}, x.options())};
  for (int64_t i = range.from; i < range.to; ++i) {
    const Layer& layer = layers_[static_cast<size_t>(i)];
    const Cache::Layer& kept = cache.layers[static_cast<size_t>(i)];
    attend_own(layer, kept, positions, cache.rotation, b);
    attend_context(layer, kept, cache, b);
    feed_forward(layer, b);
  }
  return b.x;
}

}  // namespace melete::spear_tts

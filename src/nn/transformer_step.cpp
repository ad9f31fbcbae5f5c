#include "nn/transformer_step.h"

#include <cmath>

#include "core/autocast.h"
#include "core/base/error.h"
#include "kernels/gated_gelu.h"
#include "kernels/one_position.h"

namespace melete {

struct TransformerStep::Buffers {
  int64_t rows;
  at::Tensor x, normed, queries, mixed, wide, inner, scores;
};

namespace {

float* data(const at::Tensor& tensor) {
  return tensor.data_ptr<float>();
}

void norm_rows(const at::Tensor& x, const at::Tensor& gain, const at::Tensor& y) {
  const int64_t n = gain.size(0);
  for (int64_t row = 0; row < x.size(0); ++row)
    norm_row(data(x) + row * n, data(gain), nullptr, data(y) + row * n, n);
}

}  // namespace

bool TransformerStep::fits(TransformerImpl& model, int64_t rows) {
  const at::Tensor& weight = model.norm->weight;
  return rows <= kFewRows && weight.device().is_cpu() && weight.scalar_type() == at::kFloat &&
         autocast_type(at::kCPU, at::kFloat) == at::kFloat;
}

TransformerStep::Heads TransformerStep::pack(AttentionImpl& attention, WeightStorage storage) const {
  return {RowWeights(attention.query->weight, storage), RowWeights(attention.key_value->weight, storage),
          RowWeights(attention.output->weight, storage), attention.norm->weight.detach()};
}

TransformerStep::TransformerStep(TransformerImpl& model, int64_t capacity, const at::Tensor& seen,
                                 const Context& context, WeightStorage storage)
    : config_(model.config()), norm_(model.norm->weight.detach()) {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < model.attention->size(); ++i) {
    Layer layer;
    layer.own = pack(model.attention->at<AttentionImpl>(i), storage);
    if (!model.cross->is_empty()) layer.cross = pack(model.cross->at<AttentionImpl>(i), storage);
    auto& inner = model.feed_forward->at<FeedForwardImpl>(i);
    layer.input = RowWeights(inner.input->weight, storage);
    layer.output = RowWeights(inner.output->weight, storage);
    layer.norm = inner.norm->weight.detach();
    layer.inner_norm = inner.inner_norm->weight.detach();
    layers_.push_back(std::move(layer));
  }
  prefix_ = config_.condition == "prefix" ? context.values.size(1) : 0;
  const bool masked_prefix = prefix_ > 0 && context.mask.defined();
  if (seen.defined() || masked_prefix) {
    const int64_t rows = seen.defined() ? seen.size(0) : context.mask.size(0);
    hidden_ = at::zeros({rows, prefix_ + capacity}, at::kBool);
    if (seen.defined()) hidden_.narrow(1, prefix_, capacity).copy_(seen.logical_not());
    if (masked_prefix) hidden_.narrow(1, 0, prefix_).copy_(context.mask.logical_not());
  }
  if (config_.condition == "cross" && context.mask.defined())
    cross_hidden_ = at::constant_pad_nd(context.mask.logical_not(), {1, 0}, 0);  // the learned key is seen
}

// Adds what the heads find among `keys` pairs to the stream.
void TransformerStep::attend(const Heads& heads, const at::Tensor& pairs, int64_t keys, const float* bias,
                             int64_t bias_step, const at::Tensor& hidden, Buffers& b) const {
  const int64_t width = config_.heads * config_.head_dim;
  heads.query.multiply(data(b.normed), b.rows, nullptr, data(b.queries), width);
  PositionAttention attention;
  attention.step = pairs.stride(1);
  attention.keys = keys;
  attention.heads = config_.heads;
  attention.dim = config_.head_dim;
  attention.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(config_.head_dim)));
  attention.bias = bias;
  attention.bias_from = prefix_;
  attention.bias_step = bias_step;
  for (int64_t row = 0; row < b.rows; ++row) {
    attention.query = data(b.queries) + row * width;
    attention.first_key = data(pairs) + row * pairs.stride(0);
    attention.first_value = attention.first_key + config_.head_dim;
    if (hidden.defined())
      attention.hidden = reinterpret_cast<const uint8_t*>(hidden.data_ptr<bool>()) + row * hidden.stride(0);
    attend_position(attention, data(b.scores), data(b.mixed) + row * width);
  }
  heads.output.multiply(data(b.mixed), b.rows, nullptr, data(b.x), config_.dim, true);
}

at::Tensor TransformerStep::forward(const at::Tensor& x, const at::Tensor& given_bias,
                                    TransformerCache& cache) {
  const at::NoGradGuard no_grad;
  const int64_t rows = x.size(0), dim = config_.dim, inner = layers_.front().output.inputs();
  const int64_t keys = cache.length + 1;
  require(keys <= cache.own.front().size(1), "[transformer] the cache holds {} positions, {} needed",
          cache.own.front().size(1), keys);
  const at::Tensor bias = given_bias.stride(1) == 1 ? given_bias : given_bias.contiguous();
  const int64_t bias_step = bias.size(0) == 1 ? 0 : bias.stride(0);
  require(bias.size(1) + prefix_ == keys, "[transformer] a bias for {} keys expected, got {}", keys - prefix_,
          bias.size(1));
  int64_t most = keys;
  for (const at::Tensor& pairs : cache.cross)
    if (pairs.defined()) most = std::max(most, pairs.size(1));
  const auto room = [&](int64_t width) { return at::empty({rows, width}, x.options()); };
  const int64_t width = config_.heads * config_.head_dim;
  Buffers b{rows,        x.clone(at::MemoryFormat::Contiguous),
            room(dim),   room(width),
            room(width), room(2 * inner),
            room(inner), at::empty({config_.heads, most}, x.options())};
  for (size_t i = 0; i < layers_.size(); ++i) {
    const Layer& layer = layers_[i];
    const at::Tensor& own = cache.own[i];
    // Keys and values see the stream as it is; only queries are normalised.
    layer.own.key_value.multiply(data(b.x), rows, nullptr, data(own) + cache.length * own.stride(1),
                                 own.stride(0));
    norm_rows(b.x, layer.own.norm, b.normed);
    attend(layer.own, own, keys, data(bias), bias_step, hidden_, b);
    if (config_.condition == "cross") {
      norm_rows(b.x, layer.cross.norm, b.normed);
      attend(layer.cross, cache.cross[i], cache.cross[i].size(1), nullptr, 0, cross_hidden_, b);
    }
    norm_rows(b.x, layer.norm, b.normed);
    layer.input.multiply(data(b.normed), rows, nullptr, data(b.wide), 2 * inner);
    for (int64_t row = 0; row < rows; ++row)
      gated_gelu_row(data(b.wide) + row * 2 * inner, data(b.inner) + row * inner, inner,
                     GateOrder::value_first);
    norm_rows(b.inner, layer.inner_norm, b.inner);
    layer.output.multiply(data(b.inner), rows, nullptr, data(b.x), dim, true);
  }
  cache.length = keys;
  norm_rows(b.x, norm_, b.x);
  return b.x;
}

}  // namespace melete

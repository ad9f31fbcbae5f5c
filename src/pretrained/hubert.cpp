#include "pretrained/hubert.h"

#include <cmath>
#include <functional>
#include <numeric>

#include "core/base/error.h"
#include "nn/attention.h"
#include "nn/named_activation.h"

namespace melete {

namespace {

constexpr double kConvNormEpsilon = 1e-5;

at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double epsilon) {
  return at::layer_norm(x, {x.size(-1)}, weight, bias, epsilon);
}

}  // namespace

int64_t HubertConfig::samples_per_frame() const {
  return std::accumulate(conv_strides.begin(), conv_strides.end(), int64_t{1}, std::multiplies<>());
}

int64_t HubertConfig::shortest_samples() const {
  int64_t samples = 1;
  for (size_t i = conv_kernels.size(); i-- > 0;) samples = (samples - 1) * conv_strides[i] + conv_kernels[i];
  return samples;
}

int64_t HubertConfig::frames(int64_t samples) const {
  for (size_t i = 0; i < conv_kernels.size(); ++i) {
    if (samples < conv_kernels[i]) return 0;
    samples = (samples - conv_kernels[i]) / conv_strides[i] + 1;
  }
  return samples;
}

void HubertConfig::check() const {
  require(!conv_dims.empty() && conv_kernels.size() == conv_dims.size() &&
              conv_strides.size() == conv_dims.size(),
          "[hubert] expected as many conv_kernels and conv_strides as conv_dims, got {}, {} and {}",
          conv_kernels.size(), conv_strides.size(), conv_dims.size());
  require(dim % heads == 0, "[hubert] dim {} does not split into {} heads", dim, heads);
  require(dim % position_groups == 0, "[hubert] dim {} does not split into {} position_groups", dim,
          position_groups);
}

void describe(Schema& schema, HubertConfig& config) {
  schema.option("sample_rate_hz", config.sample_rate_hz, "of the audio").at_least(1).unit("Hz");
  schema.option("conv_dims", config.conv_dims, "channels of the convolutions").at_least(1);
  schema.option("conv_kernels", config.conv_kernels, "their kernels").at_least(1);
  schema.option("conv_strides", config.conv_strides, "their strides").at_least(1);
  schema.option("conv_bias", config.conv_bias, "whether they have a bias");
  schema.option("conv_norm", config.conv_norm, "norm of the first of them, or of all")
      .one_of({"group", "layer"});
  schema.option("conv_activation", config.conv_activation, "between them").one_of(activation_names());
  schema.option("feature_norm", config.feature_norm, "norm before the projection");
  schema.option("dim", config.dim, "width of the transformer").at_least(1);
  schema.option("layers", config.layers, "of the transformer").at_least(0);
  schema.option("heads", config.heads, "attention heads").at_least(1);
  schema.option("feed_forward_dim", config.feed_forward_dim, "width inside the feed-forward layers")
      .at_least(1);
  schema.option("activation", config.activation, "inside them").one_of(activation_names());
  schema.option("norm_first", config.norm_first, "norms before attention and feed-forward, not after");
  schema.option("norm_epsilon", config.norm_epsilon, "of the transformer's norms").at_least(0);
  schema.option("position_kernel", config.position_kernel, "of the position convolution").at_least(1);
  schema.option("position_groups", config.position_groups, "of the position convolution").at_least(1);
  schema.option("position_batch_norm", config.position_batch_norm, "before the position convolution");
  schema.option("standardise_wave", config.standardise_wave, "zero mean and unit variance of the input");
}

HubertConvImpl::HubertConvImpl(const HubertConfig& config, int64_t index)
    : norm_(config.conv_norm == "layer" ? Norm::layer
            : index == 0                ? Norm::group
                                        : Norm::none),
      stride_(config.conv_strides[static_cast<size_t>(index)]),
      activation_(config.conv_activation) {
  const auto at = static_cast<size_t>(index);
  const int64_t in = index == 0 ? 1 : config.conv_dims[at - 1], out = config.conv_dims[at];
  weight = register_parameter("weight", random_weight({out, in, config.conv_kernels[at]}));
  if (config.conv_bias) bias = register_parameter("bias", at::zeros({out}));
  if (norm_ == Norm::none) return;
  norm_weight = register_parameter("norm_weight", at::ones({out}));
  norm_bias = register_parameter("norm_bias", at::zeros({out}));
}

at::Tensor HubertConvImpl::forward(const at::Tensor& x) {
  at::Tensor y = at::conv1d(x, weight, bias, stride_);
  if (norm_ == Norm::group) y = at::group_norm(y, y.size(1), norm_weight, norm_bias, kConvNormEpsilon);
  if (norm_ == Norm::layer)
    y = layer_norm(y.transpose(1, 2), norm_weight, norm_bias, kConvNormEpsilon).transpose(1, 2);
  return activate(activation_, y);
}

HubertLayerImpl::HubertLayerImpl(const HubertConfig& config) : config_(config) {
  const int64_t dim = config.dim, wide = config.feed_forward_dim;
  qkv_weight = register_parameter("qkv_weight", random_weight({3 * dim, dim}));
  qkv_bias = register_parameter("qkv_bias", at::zeros({3 * dim}));
  output_weight = register_parameter("output_weight", random_weight({dim, dim}));
  output_bias = register_parameter("output_bias", at::zeros({dim}));
  attention_norm_weight = register_parameter("attention_norm_weight", at::ones({dim}));
  attention_norm_bias = register_parameter("attention_norm_bias", at::zeros({dim}));
  feed_input_weight = register_parameter("feed_input_weight", random_weight({wide, dim}));
  feed_input_bias = register_parameter("feed_input_bias", at::zeros({wide}));
  feed_output_weight = register_parameter("feed_output_weight", random_weight({dim, wide}));
  feed_output_bias = register_parameter("feed_output_bias", at::zeros({dim}));
  feed_norm_weight = register_parameter("feed_norm_weight", at::ones({dim}));
  feed_norm_bias = register_parameter("feed_norm_bias", at::zeros({dim}));
}

at::Tensor HubertLayerImpl::attention(const at::Tensor& x) const {
  const int64_t batch = x.size(0), frames = x.size(1), head_dim = config_.dim / config_.heads;
  const auto heads =
      at::linear(x, qkv_weight, qkv_bias).view({batch, frames, 3, config_.heads, head_dim}).unbind(2);
  AttentionOptions how;
  how.scale = 1 / std::sqrt(static_cast<double>(head_dim));
  return at::linear(attend(heads[0], heads[1], heads[2], how), output_weight, output_bias);
}

at::Tensor HubertLayerImpl::feed_forward(const at::Tensor& x) const {
  return at::linear(activate(config_.activation, at::linear(x, feed_input_weight, feed_input_bias)),
                    feed_output_weight, feed_output_bias);
}

at::Tensor HubertLayerImpl::forward(const at::Tensor& input) {
  const auto attention_norm = [&](const at::Tensor& x) {
    return layer_norm(x, attention_norm_weight, attention_norm_bias, config_.norm_epsilon);
  };
  const auto feed_norm = [&](const at::Tensor& x) {
    return layer_norm(x, feed_norm_weight, feed_norm_bias, config_.norm_epsilon);
  };
  if (config_.norm_first) {
    const at::Tensor x = input + attention(attention_norm(input));
    return x + feed_forward(feed_norm(x));
  }
  const at::Tensor x = attention_norm(input + attention(input));
  return feed_norm(x + feed_forward(x));
}

HubertImpl::HubertImpl(const HubertConfig& config) : config_(config) {
  config.check();
  for (size_t i = 0; i < config.conv_dims.size(); ++i)
    convolutions->push_back(HubertConv(config, static_cast<int64_t>(i)));
  register_module("convolutions", convolutions);
  const int64_t features = config.conv_dims.back(), dim = config.dim;
  if (config.feature_norm) {
    feature_norm_weight = register_parameter("feature_norm_weight", at::ones({features}));
    feature_norm_bias = register_parameter("feature_norm_bias", at::zeros({features}));
  }
  projection_weight = register_parameter("projection_weight", random_weight({dim, features}));
  projection_bias = register_parameter("projection_bias", at::zeros({dim}));
  position_weight = register_parameter(
      "position_weight", random_weight({dim, dim / config.position_groups, config.position_kernel}));
  position_bias = register_parameter("position_bias", at::zeros({dim}));
  if (config.position_batch_norm) {
    position_scale = register_parameter("position_scale", at::ones({dim}));
    position_shift = register_parameter("position_shift", at::zeros({dim}));
  }
  norm_weight = register_parameter("norm_weight", at::ones({dim}));
  norm_bias = register_parameter("norm_bias", at::zeros({dim}));
  for (int64_t i = 0; i < config.layers; ++i) layers->push_back(HubertLayer(config));
  register_module("layers", layers);
}

at::Tensor HubertImpl::conv_features(const at::Tensor& wave) {
  require(wave.dim() == 2, "[hubert] expected audio [batch, samples], got {} dimensions", wave.dim());
  require(wave.size(1) >= config_.shortest_samples(), "[hubert] expected at least {} samples, got {}",
          config_.shortest_samples(), wave.size(1));
  at::Tensor x = config_.standardise_wave ? at::layer_norm(wave, {wave.size(1)}) : wave;
  x = x.unsqueeze(1);
  for (const auto& convolution : *convolutions) x = convolution->as<HubertConvImpl>()->forward(x);
  return x;
}

at::Tensor HubertImpl::embed(const at::Tensor& features) {
  at::Tensor x = features.transpose(1, 2);
  if (config_.feature_norm) x = layer_norm(x, feature_norm_weight, feature_norm_bias, config_.norm_epsilon);
  x = at::linear(x, projection_weight, projection_bias);
  const at::Tensor normed = position_scale.defined() ? x * position_scale + position_shift : x;
  const at::Tensor position = at::conv1d(normed.transpose(1, 2), position_weight, position_bias, 1,
                                         config_.position_kernel / 2, 1, config_.position_groups);
  // An even kernel gives one frame too many.
  x = x + activate(config_.conv_activation, position.narrow(2, 0, x.size(1))).transpose(1, 2);
  return config_.norm_first ? x : layer_norm(x, norm_weight, norm_bias, config_.norm_epsilon);
}

at::Tensor HubertImpl::hidden_state(const at::Tensor& wave, int64_t layer) {
  require(layer >= 0 && layer <= config_.layers, "[hubert] expected a layer of 0 .. {}, got {}",
          config_.layers, layer);
  at::Tensor x = embed(conv_features(wave));
  for (int64_t i = 0; i < layer; ++i) x = layers[static_cast<size_t>(i)]->as<HubertLayerImpl>()->forward(x);
  return x;
}

at::Tensor HubertImpl::forward(const at::Tensor& wave) {
  const at::Tensor x = hidden_state(wave, config_.layers);
  return config_.norm_first ? layer_norm(x, norm_weight, norm_bias, config_.norm_epsilon) : x;
}

}  // namespace melete

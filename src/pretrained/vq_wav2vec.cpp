#include "pretrained/vq_wav2vec.h"

#include <cmath>
#include <numeric>

#include "core/base/error.h"
#include "nn/frozen.h"
#include "nn/identity.h"
#include "nn/named_activation.h"

namespace melete {

namespace {

constexpr int64_t kUnpadded[] = {0};

}  // namespace

int64_t VqWav2VecConfig::samples_per_frame() const {
  return std::accumulate(conv_strides.begin(), conv_strides.end(), int64_t{1}, std::multiplies<>());
}

int64_t VqWav2VecConfig::shortest_samples() const {
  int64_t samples = 1;
  for (size_t i = conv_kernels.size(); i-- > 0;) samples = (samples - 1) * conv_strides[i] + conv_kernels[i];
  return samples;
}

int64_t VqWav2VecConfig::frames(int64_t samples) const {
  for (size_t i = 0; i < conv_kernels.size(); ++i) {
    if (samples < conv_kernels[i]) return 0;
    samples = (samples - conv_kernels[i]) / conv_strides[i] + 1;
  }
  return samples;
}

void VqWav2VecConfig::check() const {
  require(!conv_dims.empty() && conv_kernels.size() == conv_dims.size() &&
              conv_strides.size() == conv_dims.size(),
          "[vq-wav2vec] expected as many conv_kernels and conv_strides as conv_dims, got {}, {} and {}",
          conv_kernels.size(), conv_strides.size(), conv_dims.size());
  require(samples_per_frame() % groups == 0,
          "[vq-wav2vec] a frame of {} samples does not split into {} tokens", samples_per_frame(), groups);
  const int64_t dim = conv_dims.back();
  require(dim % groups == 0 && (quantizer_dim == 0 || quantizer != "kmeans" || quantizer_dim == dim),
          "[vq-wav2vec] {} channels and a quantizer of {} do not split into {} groups", dim, quantizer_dim,
          groups);
}

void describe(Schema& schema, VqWav2VecConfig& config) {
  schema.option("sample_rate_hz", config.sample_rate_hz, "of the audio").at_least(1).unit("Hz");
  schema.option("conv_dims", config.conv_dims, "channels of the convolutions").at_least(1);
  schema.option("conv_kernels", config.conv_kernels, "their kernels").at_least(1);
  schema.option("conv_strides", config.conv_strides, "their strides").at_least(1);
  schema.option("activation", config.activation, "between them").one_of(activation_names());
  schema.option("affine_norm", config.affine_norm, "their norms have weights");
  schema.option("skip_connections", config.skip_connections, "around convolutions of equal width");
  schema.option("residual_scale", config.residual_scale, "of the sum there, squared").at_least(0);
  schema.option("log_compression", config.log_compression, "of their output");
  schema.option("quantizer", config.quantizer, "nearest vector or largest logit")
      .one_of({"kmeans", "gumbel"});
  schema.option("codebook_size", config.codebook_size, "tokens of a group").at_least(2);
  schema.option("groups", config.groups, "tokens a frame").at_least(1);
  schema.option("shared_codebook", config.shared_codebook, "one codebook for all groups");
  schema.option("quantizer_dim", config.quantizer_dim, "of all groups together; 0: the convolutions'")
      .at_least(0);
  schema.option("projection_layers", config.projection_layers, "of gumbel's logits").at_least(1);
}

VqWav2VecImpl::VqWav2VecImpl(const VqWav2VecConfig& config) : config_(config) {
  config.check();
  int64_t in = 1;
  for (size_t i = 0; i < config.conv_dims.size(); ++i) {
    const int64_t out = config.conv_dims[i];
    conv_weights.push_back(register_parameter(fmt::format("conv_weight_{}", i),
                                              random_weight({out, in, config.conv_kernels[i]})));
    if (config.affine_norm) {
      norm_weights.push_back(register_parameter(fmt::format("norm_weight_{}", i), at::ones({out})));
      norm_biases.push_back(register_parameter(fmt::format("norm_bias_{}", i), at::zeros({out})));
    }
    in = out;
  }
  const int64_t vectors = config.quantizer_dim > 0 ? config.quantizer_dim : in;
  if (config.quantizer == "kmeans") {
    projection_weight = register_parameter("projection_weight", random_weight({in, in / config.groups, 1}));
    projection_norm_weight = register_parameter("projection_norm_weight", at::ones({in}));
    projection_norm_bias = register_parameter("projection_norm_bias", at::zeros({in}));
    codebook = register_parameter("codebook",
                                  at::randn({config.codebook_size, config.shared_codebook ? 1 : config.groups,
                                             vectors / config.groups}));
    return;
  }
  const int64_t inner = 2 * in;
  for (int64_t i = 0; i < config.projection_layers; ++i) {
    const int64_t from = i == 0 ? in : inner;
    const int64_t to = i + 1 == config.projection_layers ? config.groups * config.codebook_size : inner;
    logit_weights.push_back(register_parameter(fmt::format("logit_weight_{}", i), random_weight({to, from})));
    logit_biases.push_back(register_parameter(fmt::format("logit_bias_{}", i), at::zeros({to})));
  }
}

at::Tensor VqWav2VecImpl::features(const at::Tensor& wave) {
  require(wave.dim() == 2, "[vq-wav2vec] expected audio [batch, samples], got {} dimensions", wave.dim());
  require(wave.size(1) >= config_.shortest_samples(), "[vq-wav2vec] expected at least {} samples, got {}",
          config_.shortest_samples(), wave.size(1));
  at::Tensor x = wave.unsqueeze(1);
  for (size_t i = 0; i < conv_weights.size(); ++i) {
    const at::Tensor before = x;
    x = at::conv1d(x, conv_weights[i], {}, config_.conv_strides[i]);
    x = at::group_norm(x, 1, config_.affine_norm ? norm_weights[i] : at::Tensor(),
                       config_.affine_norm ? norm_biases[i] : at::Tensor());
    x = activate(config_.activation, x);
    if (config_.skip_connections && x.size(1) == before.size(1)) {
      const int64_t step = before.size(2) / x.size(2);
      const at::Tensor thinned = before.slice(2, 0, before.size(2), step).narrow(2, 0, x.size(2));
      x = (x + thinned) * std::sqrt(config_.residual_scale);
    }
  }
  return config_.log_compression ? at::log1p(x.abs()) : x;
}

at::Tensor VqWav2VecImpl::codes(const at::Tensor& features) {
  const int64_t batch = features.size(0), frames = features.size(2), groups = config_.groups;
  if (config_.quantizer == "gumbel") {
    at::Tensor x = features.transpose(1, 2);
    for (size_t i = 0; i < logit_weights.size(); ++i) {
      x = at::linear(x, logit_weights[i], logit_biases[i]);
      if (i + 1 < logit_weights.size()) x = activate(config_.activation, x);
    }
    return x.view({batch, frames, groups, config_.codebook_size}).argmax(-1);
  }
  at::Tensor x = at::conv1d(features, projection_weight, {}, 1, at::IntArrayRef(kUnpadded), 1, groups);
  x = at::group_norm(x, groups, projection_norm_weight, projection_norm_bias);
  x = x.view({batch, groups, -1, frames}).permute({1, 0, 3, 2}).flatten(1, 2);  // [groups, rows, dim]
  const at::Tensor book =
      codebook.expand({config_.codebook_size, groups, codebook.size(2)}).permute({1, 0, 2});
  const at::Tensor distance = book.square().sum(2).unsqueeze(1) - 2 * at::matmul(x, book.transpose(1, 2));
  return distance.argmin(-1).view({groups, batch, frames}).permute({1, 2, 0}).contiguous();
}

VqWav2VecTokenizer::VqWav2VecTokenizer(VqWav2Vec model) : model_(std::move(model)) {
  freeze(*model_);
  identity_ = identity_of_model("vq-wav2vec", model_->config(), tensors_of(*model_));
}

at::Tensor VqWav2VecTokenizer::tokenize(const at::Tensor& audio) const {
  const at::Tensor wave = audio.to(device_of(*model_));
  const FrozenScope frozen(wave);
  return model_->codes(model_->features(wave)).flatten(1).to(audio.device());
}

}  // namespace melete

#include "models/multi_scale_discriminator.h"

namespace melete {

namespace {

constexpr double kSlope = 0.1;

torch::nn::Conv1d conv(int64_t in, int64_t out, int64_t kernel, int64_t stride = 1, int64_t groups = 1) {
  return torch::nn::Conv1d(
      torch::nn::Conv1dOptions(in, out, kernel).stride(stride).padding(kernel / 2).groups(groups));
}

}  // namespace

void describe(Schema& s, MultiScaleDiscriminatorConfig& c) {
  s.option("channels", c.channels, "channels after the first convolution").at_least(1);
  s.option("layers", c.layers, "strided layers").at_least(1);
  s.option("groups", c.groups, "groups of every strided layer").at_least(1);
  s.option("max_channels", c.max_channels, "channels grow four times a layer up to this").at_least(1);
}

MultiScaleDiscriminatorImpl::MultiScaleDiscriminatorImpl(const MultiScaleDiscriminatorConfig& config,
                                                         int64_t input_channels) {
  input = register_module("input", conv(input_channels, config.channels, 15));
  int64_t channels = config.channels;
  const int64_t count = std::min(config.layers, static_cast<int64_t>(config.groups.size()));
  for (int64_t i = 0; i < count; ++i) {
    const int64_t wider = std::min(channels * 4, config.max_channels);
    layers->push_back(conv(channels, wider, 41, 4, config.groups[static_cast<size_t>(i)]));
    channels = wider;
  }
  register_module("layers", layers);
  hidden = register_module("hidden", conv(channels, channels, 5));
  output = register_module("output", conv(channels, 1, 3));
}

Judgement MultiScaleDiscriminatorImpl::forward(const at::Tensor& wave) {
  Judgement judgement;
  at::Tensor x = input(wave);
  for (const auto& layer : *layers) {
    x = at::leaky_relu(layer->as<torch::nn::Conv1dImpl>()->forward(x), kSlope);
    judgement.features.push_back(x);
  }
  judgement.logits = output(at::leaky_relu(hidden(x), kSlope));
  return judgement;
}

}  // namespace melete
